#include "levin/models/heads/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/data/batch.h"
#include "levin/models/losses/chunked_nll.h"

namespace levin::models {
namespace {

/// LibTorch's message names neither the head nor what to do.
[[noreturn]] void fail_label(const at::Tensor& labels, int64_t classes) {
  const auto counted = labels.masked_select(labels != kNotCounted);
  const auto least = counted.min().item<int64_t>(), most = counted.max().item<int64_t>();
  LEVIN_FAIL("models.labels",
             "got the label {}, but the head has scores for 0 to {}; load the model with "
             "num_labels = {}, or use the label {} for what the loss ignores",
             least < 0 ? least : most, classes - 1, std::max(most + 1, classes), kNotCounted);
}

/// logits [.., classes], labels [..]
TaskLoss cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  try {
    const auto sum = at::cross_entropy_loss(logits.flatten(0, -2), labels.flatten(), {},
                                            at::Reduction::Sum, kNotCounted);
    return mean_of(sum, labels);
  } catch (const c10::IndexError&) {
    fail_label(labels, logits.size(-1));
  }
}

void check_sizes(const at::Tensor& labels, at::IntArrayRef wanted, const char* name = "labels") {
  LEVIN_CHECK(labels.sizes() == wanted, "models.labels", "got {} of sizes {}, wanted {}", name,
              c10::str(labels.sizes()), c10::str(wanted));
}

TaskLoss mean_over_texts(const at::Tensor& loss, const at::Tensor& logits) {
  return {.loss = loss,
          .count = at::scalar_tensor(logits.size(0), logits.options().dtype(at::kLong))};
}

/// Returns the label of each token: the next token, if it belongs to the same document.
at::Tensor next_tokens(const at::Tensor& labels, const at::Tensor& document) {
  auto next = labels;
  if (document.defined()) {
    const auto before =
        at::constant_pad_nd(document.narrow(1, 0, document.size(1) - 1), {1, 0}, -1);
    next = next.masked_fill((document != before).logical_or(document < 0), kNotCounted);
  }
  return at::constant_pad_nd(next.narrow(1, 1, next.size(1) - 1), {0, 1}, kNotCounted);
}

TaskLoss classification(const at::Tensor& logits, const at::Tensor& labels, bool is_packed,
                        const Config& config) {
  const bool whole = labels.scalar_type() == at::kLong || labels.scalar_type() == at::kInt;
  std::string problem = config.text("problem_type");
  if (problem.empty()) {
    problem = logits.size(-1) == 1 ? "regression"
              : whole              ? "single_label_classification"
                                   : "multi_label_classification";
  }
  LEVIN_CHECK(!is_packed || problem == "single_label_classification", "models.packing",
              "got packed rows for {}; give it one text per row", problem);
  if (problem == "regression" && logits.size(-1) == 1) {
    LEVIN_CHECK(labels.numel() == logits.size(0), "models.labels",
                "got labels of sizes {}, wanted one label per text", c10::str(labels.sizes()));
    return mean_over_texts(at::mse_loss(logits.squeeze(-1), labels.flatten().to(at::kFloat)),
                           logits);
  }
  if (problem == "single_label_classification") {
    check_sizes(is_packed ? labels : labels.flatten(), logits.sizes().slice(0, logits.dim() - 1));
    return cross_entropy(logits, labels.to(at::kLong));
  }
  check_sizes(labels, logits.sizes());
  const auto wanted = labels.to(at::kFloat);
  if (problem == "regression") return mean_over_texts(at::mse_loss(logits, wanted), logits);
  LEVIN_CHECK(problem == "multi_label_classification", "models.config",
              "{}: got problem_type '{}', wanted regression, single_label_classification or "
              "multi_label_classification",
              config.origin(), problem);
  return mean_over_texts(at::binary_cross_entropy_with_logits(logits, wanted), logits);
}

/// logits [B, T, 2]. Positions beyond the text do not count.
TaskLoss answer(const at::Tensor& logits, const Batch& batch) {
  const int64_t length = logits.size(1);
  const auto part = [&](int64_t which, const char* name) {
    check_sizes(batch[name], {logits.size(0)}, name);
    return at::cross_entropy_loss(logits.select(-1, which), batch[name].clamp(0, length), {},
                                  at::Reduction::Mean, /*ignore_index=*/length);
  };
  return mean_over_texts((part(0, "start_positions") + part(1, "end_positions")) / 2, logits);
}

}  // namespace

TaskLoss mean_of(const at::Tensor& sum, const at::Tensor& labels) {
  const auto count = labels.ne(kNotCounted).sum();
  return {.loss = sum / count.clamp_min(1), .count = count};
}

at::Tensor placed_labels(Task task, const at::Tensor& labels, const Inputs& inputs) {
  check_sizes(labels, inputs.input_ids.sizes());
  return task == Task::kTextGeneration ? next_tokens(labels, inputs.document) : labels;
}

TaskLoss loss_of(Task task, const at::Tensor& given, const Inputs& inputs, const Batch& batch,
                 const Config& config) {
  if (task == Task::kFeatureExtraction || task == Task::kSentenceSimilarity) return {};
  const auto logits = given.to(at::kFloat);
  if (task == Task::kQuestionAnswering) {
    const bool has = batch.contains("start_positions") && batch.contains("end_positions");
    return has ? answer(logits, batch) : TaskLoss{};
  }
  if (!batch.contains("labels")) return {};
  const at::Tensor& labels = batch["labels"];
  if (task == Task::kTextClassification)
    return classification(logits, labels, inputs.document.defined(), config);
  return cross_entropy(logits, placed_labels(task, labels, inputs));
}

}  // namespace levin::models
