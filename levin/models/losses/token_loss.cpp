#include "levin/models/losses/token_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>

#include "levin/base/check.h"
#include "levin/data/batch.h"
#include "levin/models/losses/chunked_nll.h"
#include "levin/models/pretrained_parts.h"

namespace levin::models {
namespace {

/// Below this a vocabulary's scores are no burden, and one product is the fastest.
constexpr int64_t kLargeVocabulary = 8192;

std::optional<OutputLayer> large_output(const PretrainedParts& parts) {
  if (parts.task != Task::kTextGeneration && parts.task != Task::kFillMask) return std::nullopt;
  auto output = parts.head->output_layer(*parts.body);
  if (output && output->matrix.size(0) < kLargeVocabulary) return std::nullopt;
  return output;
}

}  // namespace

TaskLoss loss_without_logits(const PretrainedParts& parts, const at::Tensor& hidden,
                             const Inputs& inputs, const at::Tensor& labels) {
  const auto output = large_output(parts);
  if (!output) return {};
  const auto placed = placed_labels(parts.task, labels, inputs);
  const auto x = parts.head->before_output(hidden, inputs, *parts.body);
  return mean_of(nll_sum(x.flatten(0, 1), *output, placed.flatten()), placed);
}

at::Tensor nll_of_labels(Pretrained& net, const Batch& batch) {
  const PretrainedParts& parts = parts_of(net);
  const Inputs inputs = Inputs::from(batch);
  const auto hidden = parts.body->forward(inputs);
  const auto placed = placed_labels(parts.task, batch["labels"], inputs);
  if (const auto output = large_output(parts)) {
    const auto x = parts.head->before_output(hidden, inputs, *parts.body);
    return nll_of_each(x.flatten(0, 1), *output, placed.flatten()).view(placed.sizes());
  }
  const auto logits = parts.head->forward(hidden, inputs, *parts.body).to(at::kFloat);
  const auto counts = placed.ne(kNotCounted);
  const auto index = placed.masked_fill(counts.logical_not(), 0).unsqueeze(-1);
  const auto nll = -at::log_softmax(logits, -1).gather(-1, index).squeeze(-1);
  return nll.masked_fill(counts.logical_not(), 0);
}

}  // namespace levin::models
