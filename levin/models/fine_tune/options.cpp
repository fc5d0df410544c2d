#include "levin/models/fine_tune/options.h"

#include <map>

namespace levin::models {

void FineTuneOptions::fields(FieldVisitor& field) {
  field("objective", objective,
        "loss of embed: in-batch-negatives, cosine or triplet; auto: derived from the rows or the "
        "model");
  field("lr", lr, "peak learning rate of AdamW; unset: 5e-5, for sft 2e-5, for dpo 1e-6");
  field("schedule", schedule, "learning rate schedule: linear, cosine or constant");
  field("warmup_steps", warmup_steps, "optimizer steps of linear warm-up from 0");
  field("weight_decay", weight_decay, "weight decay of AdamW, not applied to biases and norms");
  field("adam_beta1", adam_beta1, "AdamW: decay rate of the mean of gradients");
  field("adam_beta2", adam_beta2, "AdamW: decay rate of the mean of squared gradients");
  field("adam_epsilon", adam_epsilon,
        "AdamW: term added to the denominator for numerical stability");
  field("max_grad_norm", max_grad_norm, "clip gradients to this norm; 0: no clipping");
  field("beta", beta, "dpo: how close the model stays to the reference model; higher is closer");
  field("label_smoothing", label_smoothing,
        "dpo: probability that the labels of a pair are swapped");
  field("scale", scale, "in-batch-negatives: factor on the similarities (1 / temperature)");
  field("margin", margin, "triplet: how much farther the negative must be than the positive");
  field("recall_at", recall_at, "in-batch-negatives, triplet: k of recall@k in validation");
}

std::vector<std::string> objectives_of_option(std::string_view option) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> kObjectives = {
      {"beta", {"dpo"}},
      {"label_smoothing", {"dpo"}},
      {"scale", {"in-batch-negatives"}},
      {"margin", {"triplet"}},
      {"recall_at", {"in-batch-negatives", "triplet"}}};
  const auto found = kObjectives.find(option);
  return found == kObjectives.end() ? std::vector<std::string>() : found->second;
}

}  // namespace levin::models
