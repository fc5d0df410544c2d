#include <map>

#include "levin/models/fine_tune/fine_tune.h"

namespace levin::models {

void FineTuneOptions::fields(FieldVisitor& field) {
  field("objective", objective,
        "of embed: in-batch-negatives, cosine or triplet; auto: by the rows or the model");
  field("lr", lr, "highest learning rate of AdamW; 5e-5, of sft 2e-5, of dpo 1e-6 when unset");
  field("schedule", schedule, "of the learning rate: linear, cosine or constant");
  field("warmup_steps", warmup_steps, "optimizer steps in which the learning rate rises from 0");
  field("weight_decay", weight_decay, "of AdamW; biases and norms have none");
  field("adam_beta1", adam_beta1, "of AdamW: decay of the mean of gradients");
  field("adam_beta2", adam_beta2, "of AdamW: decay of the mean of their squares");
  field("adam_epsilon", adam_epsilon, "of AdamW: what the square root is raised by");
  field("max_grad_norm", max_grad_norm, "gradients are clipped to this norm; 0: they are not");
  field("beta", beta, "of dpo: how near the reference the model stays");
  field("label_smoothing", label_smoothing,
        "of dpo: the part of pairs that may be the wrong way round");
  field("scale", scale, "of in-batch negatives: what similarities are multiplied by");
  field("margin", margin, "of triplets: how much farther the wrong answer has to be");
  field("recall_at", recall_at,
        "of in-batch negatives and triplets: validation counts answers among so many nearest");
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
