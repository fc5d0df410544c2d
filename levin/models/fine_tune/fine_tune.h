#pragma once
// fine_tune: makes a Module of a pretrained model, with the loss, the optimizer and the metrics of
// its task. Use it between from_pretrained and Trainer::fit.
//
//   auto net = levin::models::from_pretrained("minilm",
//                                             {.task = "text-classification", .num_labels = 20});
//   levin::lora::add(net, {.r = 16, .lora_alpha = 32});         // or train all weights without it
//   levin::Trainer trainer({.max_epochs = 3});
//   trainer.fit(levin::models::fine_tune(net, {.lr = 2e-4}), train_loader, val_loader);
//   net->save_pretrained("tuned");

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/models/pretrained.h"
#include "levin/module/module.h"

// FineTuneOptions: how a pretrained model is trained, with the defaults of Hugging Face's trainers.
//
//   levin::models::fine_tune(net, {.objective = "dpo", .beta = 0.2})

namespace levin::models {

class Pretrained;

/// Options of fine_tune(), with the defaults of transformers' TrainingArguments and TRL's SFTConfig
/// and DPOConfig.
struct FineTuneOptions {
  /// Loss. auto: the loss of the model's task, which is in-batch-negatives for sentence-similarity.
  /// Others: sft and dpo for text-generation; in-batch-negatives, cosine and triplet for
  /// sentence-similarity.
  std::string objective = "auto";
  std::optional<double> lr;  ///< peak learning rate; unset: 5e-5, for sft 2e-5, for dpo 1e-6
  /// Learning rate schedule after the warm-up: linear (falls to 0), cosine or constant.
  std::string schedule = "linear";
  int64_t warmup_steps = 0;    ///< optimizer steps in which the learning rate rises from 0
  double weight_decay = 0.0;   ///< weight decay of AdamW; not applied to biases and norms
  double adam_beta1 = 0.9;     ///< AdamW: decay rate of the mean of gradients
  double adam_beta2 = 0.999;   ///< AdamW: decay rate of the mean of squared gradients
  double adam_epsilon = 1e-8;  ///< AdamW: added to the denominator
  double max_grad_norm = 1.0;  ///< clip gradients to this norm; 0: no clipping

  double beta = 0.1;             ///< dpo: higher values keep the model closer to the reference
  double label_smoothing = 0.0;  ///< dpo: assumed fraction of pairs with swapped preference
  double scale = 20.0;           ///< in-batch-negatives: factor of similarities, 1 / temperature
  double margin = 5.0;           ///< triplet: margin between positive and negative distances
  /// in-batch-negatives, triplet: validation reports the recall among this many nearest answers.
  int64_t recall_at = 1;

  /// dpo: the reference model. If it is null, the reference is the model without its adapter. For a
  /// model without an adapter it is loaded once more from the model's folder.
  std::shared_ptr<Pretrained> reference = {};

  /// Visits all options, for the command line and TOML files.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Returns the objectives in which an option of FineTuneOptions has an effect, given the option's
/// name; empty if it has one in all of them.
LEVIN_API std::vector<std::string> objectives_of_option(std::string_view option);

/// Returns a Module that trains the model. Its steps take the batches of Pretrained::forward. For
/// dpo, fields have a dim of 2 after the batch dim (chosen, rejected); for sentence embeddings this
/// dim is 2 or more (anchor, positive, negatives). The optimizer is AdamW with the schedule of
/// transformers' Trainer, or of TRL for sft and dpo. A batch is weighted by the number of labels
/// that count, so that with gradient accumulation and several ranks the loss is the mean over all
/// these labels.
///
/// It logs train_loss, the loss of an optimizer step over all its batches and ranks. Validation
/// logs val_loss and, depending on the task, val_perplexity (text-generation, fill-mask),
/// val_accuracy and val_f1 (classification; the F1 of class 1 for two classes, else the mean over
/// classes; for tokens with BIO labels the F1 of entities), val_spearman (regression; cosine) and
/// val_recall_at_k (in-batch-negatives, triplet; k is recall_at). dpo also logs TRL's
/// rewards/chosen, rewards/rejected, rewards/accuracies and rewards/margins, in validation with the
/// prefix "val_". test_step logs the values of validation with the prefix "test_". predict_step
/// returns logits, or embeddings.
///
/// Throws Error "models.fine_tune" for an objective or schedule that does not exist, an objective
/// that does not fit the model's task, an option that the objective does not use, or a number that
/// is not valid; and "models.dpo.reference" if dpo has no reference.
LEVIN_API std::shared_ptr<Module> fine_tune(std::shared_ptr<Pretrained> net,
                                            const FineTuneOptions& options = {});

/// Returns whether transformers' Trainer applies weight decay to a parameter of this name: false
/// for biases and norms, which it finds by patterns in the name.
LEVIN_API bool decays(const std::string& name);

}  // namespace levin::models
