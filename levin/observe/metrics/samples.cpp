#include "levin/observe/metrics/samples.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <utility>

#include "levin/base/check.h"

namespace levin::metrics {
namespace {

std::string shape(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

bool are_integers(const at::Tensor& values) {
  return c10::isIntegralType(values.scalar_type(), /*includeBool=*/true);
}

/// bool: which values are not among 0 to count - 1. On the CPU there may be none.
at::Tensor outside_of(const at::Tensor& values, int64_t count, const at::Tensor& ignored,
                      const char* what) {
  at::Tensor outside = values.lt(0).logical_or(values.ge(count));
  if (ignored.defined()) outside = outside.logical_and(ignored.logical_not());
  if (!values.is_cpu() || !outside.any().item<bool>()) return outside;
  const at::Tensor first = outside.nonzero()[0].contiguous();
  at::Tensor value = values;
  for (int64_t dim = 0; dim < first.size(0); ++dim) value = value[first[dim].item<int64_t>()];
  LEVIN_FAIL("observe.metric.label",
             "got {} = {} at index [{}], wanted 0 to {}; set ignore_index if it must not count",
             what, value.item<int64_t>(),
             fmt::join(first.const_data_ptr<int64_t>(),
                       first.const_data_ptr<int64_t>() + first.size(0), ", "),
             count - 1);
}

/// [N, C, ...] -> [N ..., C]
at::Tensor in_rows(const at::Tensor& values) {
  return values.movedim(1, -1).reshape({-1, values.size(1)});
}

void check_same(const at::Tensor& scores, const at::Tensor& labels, Task task, int64_t classes) {
  const bool is_multilabel = task == Task::kMultilabel;
  LEVIN_CHECK(scores.sizes() == labels.sizes() &&
                  (!is_multilabel || (labels.dim() >= 2 && labels.size(1) == classes)),
              "observe.metric.shape", "got scores {} and labels {}, wanted {}", shape(scores),
              shape(labels),
              is_multilabel ? fmt::format("both [N, {}, ...] (num_labels = {})", classes, classes)
                            : "the same shape for a binary task");
  check_labels(labels);
}

}  // namespace

void check_option(const char* metric, bool is_right, const char* option, const std::string& got,
                  const char* wanted) {
  LEVIN_CHECK(is_right, "observe.metric.options", "{} got {} = {}, wanted {}", metric, option, got,
              wanted);
}

Task checked_task(const char* metric, const std::string& task, int64_t num_classes,
                  int64_t num_labels) {
  const bool is_multiclass = task == "multiclass", is_multilabel = task == "multilabel";
  check_option(metric, is_multiclass || is_multilabel || task == "binary", "task", "'" + task + "'",
               "binary, multiclass or multilabel");
  check_option(metric, is_multiclass ? num_classes >= 2 : num_classes == 0, "num_classes",
               std::to_string(num_classes),
               is_multiclass ? "2 or more for a multiclass task" : "0: the task is not multiclass");
  check_option(metric, is_multilabel ? num_labels >= 2 : num_labels == 0, "num_labels",
               std::to_string(num_labels),
               is_multilabel ? "2 or more for a multilabel task" : "0: the task is not multilabel");
  if (is_multiclass) return Task::kMulticlass;
  return is_multilabel ? Task::kMultilabel : Task::kBinary;
}

void check_labels(const at::Tensor& labels) {
  LEVIN_CHECK(are_integers(labels), "observe.metric.dtype", "got labels of dtype {}, wanted int64",
              c10::toString(labels.scalar_type()));
}

void check_multiclass(const at::Tensor& scores, const at::Tensor& labels, int64_t top_k) {
  check_labels(labels);
  if (labels.dim() == 0 || scores.dim() != labels.dim() + 1) {
    LEVIN_CHECK(
        scores.sizes() == labels.sizes(), "observe.metric.shape",
        "got scores {} and labels {}, wanted scores [N, C, ...] with labels [N, ...], or predicted "
        "classes of the same shape as labels",
        shape(scores), shape(labels));
    LEVIN_CHECK(are_integers(scores), "observe.metric.dtype",
                "got scores of dtype {} with the shape of labels, {}; give scores [N, C], or class "
                "indices as integers",
                c10::toString(scores.scalar_type()), shape(labels));
    LEVIN_CHECK(top_k == 1, "observe.metric.top_k",
                "got top_k {} with class indices, wanted scores [N, C]", top_k);
    return;
  }
  bool same = scores.size(0) == labels.size(0);
  for (int64_t dim = 1; dim < labels.dim(); ++dim) same &= scores.size(dim + 1) == labels.size(dim);
  LEVIN_CHECK(same, "observe.metric.shape",
              "got scores {} and labels {}, wanted scores [N, C, ...] with labels [N, ...]",
              shape(scores), shape(labels));
  LEVIN_CHECK(top_k >= 1 && top_k <= scores.size(1), "observe.metric.top_k",
              "got top_k {} with scores {}, wanted 1 to {}", top_k, shape(scores), scores.size(1));
}

void check_real(const at::Tensor& scores, const at::Tensor& labels, Task task) {
  LEVIN_CHECK(scores.is_floating_point(), "observe.metric.dtype",
              "got scores of dtype {}, wanted real scores; classes have no curve",
              c10::toString(scores.scalar_type()));
  LEVIN_CHECK(task != Task::kMulticlass || scores.dim() == labels.dim() + 1, "observe.metric.shape",
              "got scores {} and labels {}, wanted scores [N, C, ...] with labels [N, ...]",
              shape(scores), shape(labels));
}

void check_tokens(const at::Tensor& logits, const at::Tensor& labels) {
  LEVIN_CHECK(logits.dim() == 3 && labels.dim() == 2 && logits.size(0) == labels.size(0) &&
                  logits.size(1) == labels.size(1),
              "observe.metric.shape",
              "got logits {} and labels {}, wanted logits [B, T, V] with labels [B, T]",
              shape(logits), shape(labels));
  check_labels(labels);
  LEVIN_CHECK(logits.is_floating_point(), "observe.metric.dtype",
              "got logits of dtype {}, wanted real numbers", c10::toString(logits.scalar_type()));
}

Samples samples_of(Task task, int64_t classes, std::optional<int64_t> ignore_index,
                   const at::Tensor& scores, const at::Tensor& labels) {
  const bool is_multiclass = task == Task::kMulticlass;
  const bool are_scores = is_multiclass ? scores.dim() == labels.dim() + 1 : !are_integers(scores);
  if (!is_multiclass) {
    check_same(scores, labels, task, classes);
  } else if (are_scores) {
    LEVIN_CHECK(scores.size(1) == classes, "observe.metric.shape",
                "got scores {}, wanted [N, {}, ...] (num_classes = {})", shape(scores), classes,
                classes);
  }
  const int64_t range = is_multiclass ? classes : 2;
  at::Tensor ignored;
  if (ignore_index) ignored = labels.eq(*ignore_index);
  at::Tensor outside = outside_of(labels, range, ignored, "a label");
  if (!are_scores)
    outside = outside.logical_or(outside_of(scores, range, ignored, "a predicted class"));
  at::Tensor counted = outside.logical_not();
  if (ignored.defined()) counted = counted.logical_and(ignored.logical_not());

  const auto rows = [&](const at::Tensor& values) -> at::Tensor {
    if (is_multiclass) return values.flatten();
    return task == Task::kBinary ? values.reshape({-1, 1}) : in_rows(values);
  };
  return {.scores = is_multiclass && are_scores ? in_rows(scores) : rows(scores),
          .labels = rows(labels.to(at::kLong)),
          .counted = rows(counted),
          .outside = outside.sum()};
}

void check_outside(const at::Tensor& outside) {
  const int64_t count = outside.item<int64_t>();
  LEVIN_CHECK(count == 0, "observe.metric.label",
              "got {} labels or predicted classes that are out of range; set ignore_index if they "
              "must not count, or give the metric labels on the CPU, and it names the first one",
              count);
}

at::Tensor normalized(const Samples& samples, Task task, bool only_counted) {
  const at::Tensor& scores = samples.scores;
  const bool is_multiclass = task == Task::kMulticlass;
  // Not lt and gt: NaN makes scores logits.
  at::Tensor is_logit = scores.ge(0).logical_and(scores.le(1)).logical_not();
  if (only_counted) {
    is_logit = is_logit.logical_and(is_multiclass ? samples.counted.unsqueeze(1) : samples.counted);
  }
  const at::Tensor are_logits = is_logit.any();
  if (scores.is_cpu() && !are_logits.item<bool>()) return scores;
  const at::Tensor probabilities = is_multiclass ? scores.softmax(1) : scores.sigmoid();
  return scores.is_cpu() ? probabilities : at::where(are_logits, probabilities, scores);
}

at::Tensor predicted(const Samples& samples, Task task, double threshold, bool only_counted) {
  const at::Tensor& scores = samples.scores;
  if (task == Task::kMulticlass) return scores.dim() == 2 ? scores.argmax(1) : scores.to(at::kLong);
  if (are_integers(scores)) return scores.to(at::kLong);
  return normalized(samples, task, only_counted).gt(threshold).to(at::kLong);
}

at::Tensor occurrences(const at::Tensor& indices, int64_t size) {
  const at::Tensor flat = indices.flatten();
  return at::zeros({size + 1}, flat.options())
      .scatter_add(0, flat, at::ones_like(flat))
      .narrow(0, 0, size);
}

at::Tensor safe_divide(const at::Tensor& num, const at::Tensor& denom, double zero) {
  return (num / denom).masked_fill(denom.eq(0), zero);
}

}  // namespace levin::metrics
