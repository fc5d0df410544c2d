#include "levin/models/heads/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include "levin/base/check.h"
#include "levin/data/batch.h"

namespace levin::models {
namespace {

constexpr int64_t kIgnored = -100;

/// logits [.., classes], labels [..]
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                         int64_t ignored = kIgnored) {
  return at::cross_entropy_loss(logits.flatten(0, -2), labels.flatten(), {}, at::Reduction::Mean,
                                ignored);
}

void check_sizes(const at::Tensor& labels, at::IntArrayRef wanted, const char* name = "labels") {
  LEVIN_CHECK(labels.sizes() == wanted, "models.labels", "got {} of sizes {}, wanted {}", name,
              c10::str(labels.sizes()), c10::str(wanted));
}

/// What each token is to predict: the next one, if that is of the same document.
at::Tensor next_tokens(const at::Tensor& labels, const at::Tensor& document) {
  auto next = labels;
  if (document.defined()) {
    const auto before =
        at::constant_pad_nd(document.narrow(1, 0, document.size(1) - 1), {1, 0}, -1);
    next = next.masked_fill((document != before).logical_or(document < 0), kIgnored);
  }
  return at::constant_pad_nd(next.narrow(1, 1, next.size(1) - 1), {0, 1}, kIgnored);
}

at::Tensor classification(const at::Tensor& logits, const at::Tensor& labels,
                          const Config& config) {
  const bool whole = labels.scalar_type() == at::kLong || labels.scalar_type() == at::kInt;
  std::string problem = config.text("problem_type");
  if (problem.empty()) {
    problem = logits.size(-1) == 1 ? "regression"
              : whole              ? "single_label_classification"
                                   : "multi_label_classification";
  }
  if (problem == "regression" && logits.size(-1) == 1) {
    LEVIN_CHECK(labels.numel() == logits.size(0), "models.labels",
                "got labels of sizes {}, wanted one a text", c10::str(labels.sizes()));
    return at::mse_loss(logits.squeeze(-1), labels.flatten().to(at::kFloat));
  }
  if (problem == "single_label_classification") {
    check_sizes(labels.flatten(), {logits.size(0)});
    return cross_entropy(logits, labels.to(at::kLong));
  }
  check_sizes(labels, logits.sizes());
  if (problem == "regression") return at::mse_loss(logits, labels.to(at::kFloat));
  LEVIN_CHECK(problem == "multi_label_classification", "models.config",
              "{}: got problem_type '{}', wanted regression, single_label_classification or "
              "multi_label_classification",
              config.origin(), problem);
  return at::binary_cross_entropy_with_logits(logits, labels.to(at::kFloat));
}

/// logits [B, T, 2]. Positions beyond the text do not count.
at::Tensor answer(const at::Tensor& logits, const Batch& batch) {
  const int64_t length = logits.size(1);
  const auto part = [&](int64_t which, const char* name) {
    check_sizes(batch[name], {logits.size(0)}, name);
    return cross_entropy(logits.select(-1, which), batch[name].clamp(0, length), length);
  };
  return (part(0, "start_positions") + part(1, "end_positions")) / 2;
}

}  // namespace

at::Tensor loss_of(Task task, const at::Tensor& given, const Inputs& inputs, const Batch& batch,
                   const Config& config) {
  if (task == Task::kFeatureExtraction || task == Task::kSentenceSimilarity) return {};
  const auto logits = given.to(at::kFloat);
  if (task == Task::kQuestionAnswering) {
    const bool has = batch.contains("start_positions") && batch.contains("end_positions");
    return has ? answer(logits, batch) : at::Tensor();
  }
  if (!batch.contains("labels")) return {};
  const at::Tensor& labels = batch["labels"];
  if (task == Task::kTextClassification) return classification(logits, labels, config);
  check_sizes(labels, inputs.input_ids.sizes());
  if (task != Task::kTextGeneration) return cross_entropy(logits, labels);
  return cross_entropy(logits, next_tokens(labels, inputs.document));
}

}  // namespace levin::models
