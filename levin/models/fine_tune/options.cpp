#include <map>

#include "levin/models/fine_tune/fine_tune.h"

namespace levin::models {

void FineTuneOptions::fields(FieldVisitor& field) {
  field("objective", objective,
        "loss for embed: in-batch-negatives, cosine or triplet; auto: from the rows or the model");
  field("lr", lr, "peak learning rate of AdamW; unset: 5e-5, for sft 2e-5, for dpo 1e-6");
  field("schedule", schedule, "learning rate schedule: linear, cosine or constant");
  field("warmup_steps", warmup_steps, "optimizer steps in which the learning rate rises from 0");
  field("weight_decay", weight_decay, "weight decay of AdamW; not applied to biases and norms");
  field("adam_beta1", adam_beta1, "beta1 of AdamW: decay rate of the mean of gradients");
  field("adam_beta2", adam_beta2, "beta2 of AdamW: decay rate of the mean of squared gradients");
  field("adam_epsilon", adam_epsilon, "epsilon of AdamW, added to the denominator");
  field("max_grad_norm", max_grad_norm, "clip gradients to this norm; 0: no clipping");
  field("beta", beta, "dpo: higher values keep the model closer to the reference");
  field("label_smoothing", label_smoothing,
        "dpo: assumed fraction of pairs whose preference is swapped");
  field("scale", scale, "in-batch-negatives: factor that multiplies similarities");
  field("margin", margin,
        "triplet: margin by which the negative must be farther than the positive");
  field("recall_at", recall_at,
        "in-batch-negatives, triplet: validation reports recall among this many nearest");
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
