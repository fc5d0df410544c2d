#pragma once
// fine_tune: a pretrained model as a Module, with the loss and the metrics of its task. Between
// from_pretrained and the Trainer.
//
//   auto net = levin::models::from_pretrained("minilm", {.task = "text-classification", .num_labels = 20});
//   levin::lora::add(net, {.r = 16, .lora_alpha = 32});         // or leave it out: all of it is trained
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

namespace levin::models {

class Pretrained;

struct FineTuneOptions {
  /// auto: the loss of the model's task; of sentence-similarity in-batch-negatives. Others: sft and dpo for
  /// text-generation; in-batch-negatives, cosine and triplet for sentence-similarity.
  std::string objective = "auto";
  std::optional<double> lr;         ///< unset: 5e-5, of sft 2e-5, of dpo 1e-6
  std::string schedule = "linear";  ///< linear (falls to 0), cosine or constant
  int64_t warmup_steps = 0;         ///< optimizer steps in which the rate rises from 0
  double weight_decay = 0.0;        ///< of AdamW; biases and norms have none
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  ///< gradients are clipped to; 0: they are not

  double beta = 0.1;             ///< of dpo: how near the reference the model stays
  double label_smoothing = 0.0;  ///< of dpo: the part of pairs that may be the wrong way round
  double scale = 20.0;           ///< of in-batch-negatives: 1 / temperature
  double margin = 5.0;           ///< of triplet
  int64_t recall_at = 1;         ///< of embeddings, in validation: among so many nearest answers

  /// Of dpo: what the model is held against. None: the model without its adapter; where it has none,
  /// the folder that it came from, opened once more.
  std::shared_ptr<Pretrained> reference = {};

  LEVIN_API void fields(FieldVisitor& field);
};

/// The objectives that an option of FineTuneOptions has an effect for, by the option's name; empty: all of them.
LEVIN_API std::vector<std::string> objectives_of_option(std::string_view option);

/// Its steps take batches as Pretrained::forward does; dpo those with a dim of 2 after the samples (chosen,
/// rejected), embeddings those with one of 2 and more (anchor, positive, negatives). AdamW and its schedule
/// as transformers' Trainer has them, or TRL's for sft and dpo. A batch weighs what it has of labels that
/// count: under accumulation and over ranks the loss is the mean over all of them.
///
/// Logged: train_loss, of a step of the optimizer over all its batches and ranks; val_loss, and in validation val_perplexity (text-generation, fill-mask), val_accuracy and
/// val_f1 (classification; of two classes that of class 1, else the mean over classes; of tokens with
/// names in BIO that of entities), val_spearman (numbers; cosine), val_recall_at_k (in-batch negatives,
/// triplets), and of dpo TRL's rewards/chosen, /rejected, /accuracies and /margins. test_step the same
/// under "test_"; predict_step gives logits, or embeddings.
///
/// Throws Error "models.fine_tune" for an objective or schedule that does not exist, or is not for
/// the model's task, for an option that the objective does not use and a number that cannot be;
/// "models.dpo.reference" where dpo has none.
LEVIN_API std::shared_ptr<Module> fine_tune(std::shared_ptr<Pretrained> net,
                                            const FineTuneOptions& options = {});

/// As patterns of names: which parameters of the model transformers' Trainer does not decay, those of
/// biases and norms.
LEVIN_API bool decays(const std::string& name);

}  // namespace levin::models
