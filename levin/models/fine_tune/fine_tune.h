#pragma once
// fine_tune: a pretrained model as a Module, with the loss and the metrics of its task.
// Between from_pretrained and the Trainer.
//
//   auto net = levin::models::from_pretrained("minilm", {.task = "text-classification", .num_labels = 20});
//   levin::lora::add(net, {.r = 16, .lora_alpha = 32});         // or leave it out: all of it is trained
//   levin::Trainer trainer({.max_epochs = 3});
//   trainer.fit(levin::models::fine_tune(net, {.lr = 2e-4}), train_loader, val_loader);
//   net->save_pretrained("tuned");

#include <memory>

#include "levin/base/export.h"
#include "levin/models/fine_tune/options.h"
#include "levin/models/pretrained.h"
#include "levin/module/module.h"

namespace levin::models {

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
