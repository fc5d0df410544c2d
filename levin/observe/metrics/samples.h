#pragma once
// Samples: the scores and labels of a batch in rows, checked. Under the metrics of classification, which count or
// keep them. Not for users.
//
//   const Samples samples = samples_of(task, classes, ignore_index, scores, labels);
//   const at::Tensor probabilities = normalized(samples, task, true);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace levin::metrics {

enum class Task { kBinary, kMulticlass, kMultilabel };

/// Throws Error "observe.metric.options" unless exactly the number that the task needs is set.
Task checked_task(const char* metric, const std::string& task, int64_t num_classes,
                  int64_t num_labels);
/// Throws Error "observe.metric.options".
void check_option(const char* metric, bool is_right, const char* option, const std::string& got,
                  const char* wanted);

struct Samples {
  at::Tensor scores;   ///< multiclass: [N, C], or classes [N]; multilabel: [N, L]; binary: [N, 1]
  at::Tensor labels;   ///< int64: [N], [N, L] or [N, 1]
  at::Tensor counted;  ///< bool, in the shape of labels: neither ignored nor out of range
  at::Tensor outside;  ///< 0-dim int64: values out of range; on the CPU they are an error
};

/// classes: C or L. Throws Error "observe.metric.shape", "observe.metric.dtype",
/// "observe.metric.label".
Samples samples_of(Task task, int64_t classes, std::optional<int64_t> ignore_index,
                   const at::Tensor& scores, const at::Tensor& labels);
/// Throws Error "observe.metric.label" if outside, which it waits for, is not 0.
void check_outside(const at::Tensor& outside);

/// Throws Error "observe.metric.dtype" unless labels are integers.
void check_labels(const at::Tensor& labels);
/// Throws Error "observe.metric.shape" and "observe.metric.dtype" unless scores [N, C, ...] or classes match
/// labels; "observe.metric.top_k".
void check_multiclass(const at::Tensor& scores, const at::Tensor& labels, int64_t top_k);

/// Throws Error "observe.metric.shape" and "observe.metric.dtype" unless logits are [B, T, V] and labels [B, T].
void check_tokens(const at::Tensor& logits, const at::Tensor& labels);
/// Throws Error "observe.metric.dtype" unless scores are real numbers, and "observe.metric.shape" unless
/// those of multiclass have a dim of classes.
void check_real(const at::Tensor& scores, const at::Tensor& labels, Task task);

/// Probabilities: scores themselves if all of them are within 0 and 1, else their softmax or sigmoid, as
/// torchmetrics' normalize_logits_if_needed. only_counted: ignored scores have no say. torchmetrics has it
/// so where it takes ignored samples out first.
at::Tensor normalized(const Samples& samples, Task task, bool only_counted);
/// [N] or [N, L] of int64: predicted classes, or 0 and 1 by the threshold.
at::Tensor predicted(const Samples& samples, Task task, double threshold,
                     bool only_counted = false);
/// [size]: how often each value from 0 to size - 1 is in indices. size itself does not count.
at::Tensor occurrences(const at::Tensor& indices, int64_t size);
/// num / denom, and `zero` where denom is 0.
at::Tensor safe_divide(const at::Tensor& num, const at::Tensor& denom, double zero = 0);

}  // namespace levin::metrics
