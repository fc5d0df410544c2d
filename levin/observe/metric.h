#pragma once
// Metrics: values over a whole dataset that do not depend on the batch sizes, as
// torchmetrics.Metric. Steps of a module update them and log them by name. They are merged over
// ranks and read at the end of the epoch.
//
//   auto val_acc = std::make_shared<levin::metrics::Accuracy>();
//   val_acc->update(logits, batch["label"]);              // in validation_step
//   log("val_acc", val_acc);                              // computed and reset at the epoch's end

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin {

/// A value that is accumulated over batches. The accumulated tensors stay on the device of the
/// inputs of update(); only reading the result of compute() synchronizes with the device.
class LEVIN_API Metric {
 public:
  virtual ~Metric();

  /// Returns the value, a 0-dim float64 tensor on the device of the samples; NaN if there were
  /// none.
  virtual at::Tensor compute() const = 0;
  /// Forgets all samples.
  virtual void reset() = 0;
  /// Adds the state_dict() of another rank. Ranks may be merged in any grouping.
  virtual void merge(const State& other) = 0;
  /// Accumulated state.
  virtual State state_dict() const = 0;
  /// Replaces the accumulated state.
  virtual void load_state_dict(const State& state) = 0;

 protected:
  /// Returns the value over no samples: NaN, 0-dim.
  static at::Tensor nothing();
};

namespace detail {
class Reduction;
}  // namespace detail

namespace metrics {

/// Options of accuracy() and Accuracy.
struct AccuracyOptions {
  int64_t top_k = 1;  ///< a sample is correct if its label is among the k highest scores
  std::optional<int64_t> ignore_index = {};  ///< label of samples that do not count
};

/// Returns the fraction of correctly classified samples, a 0-dim float32 tensor on the device of
/// scores; NaN if there are no samples. scores is [N, C] or [N, C, ...] with labels [N] or [N,
/// ...]; or it holds class indices, integers in the shape of labels. Follows
/// torchmetrics.functional.accuracy(task="multiclass", average="micro"). Throws Error
/// "observe.metric.shape", "observe.metric.dtype" and "observe.metric.top_k".
LEVIN_API at::Tensor accuracy(const at::Tensor& scores, const at::Tensor& labels,
                              const AccuracyOptions& options = {});

/// accuracy() over many batches, counted in int64.
class LEVIN_API Accuracy : public Metric {
 public:
  /// Creates the metric without samples.
  explicit Accuracy(AccuracyOptions options = {});

  /// Adds a batch, with the shapes of accuracy(). Throws the errors of accuracy().
  void update(const at::Tensor& scores, const at::Tensor& labels);

  at::Tensor compute() const override;
  /// Forgets all samples.
  void reset() override;
  /// Adds the counts of another rank.
  void merge(const State& other) override;
  /// {"total", "correct", "ignored"}: an integer and two int64 tensors. The tensors are absent
  /// while there is nothing to count.
  State state_dict() const override;
  /// Replaces the counts.
  void load_state_dict(const State& state) override;

 private:
  AccuracyOptions options_;
  int64_t total_ = 0;   // samples seen, ignored ones too
  at::Tensor correct_;  // 0-dim int64
  at::Tensor ignored_;  // 0-dim int64
};

/// Common base of Mean, Sum, Min and Max; not for users.
class LEVIN_API Reduced : public Metric {
 public:
  /// Reduction over all values.
  enum class Kind {
    kMean,  ///< weighted mean
    kSum,   ///< sum
    kMin,   ///< minimum
    kMax    ///< maximum
  };
  ~Reduced() override;
  /// Copies the metric with its state.
  Reduced(const Reduced& other);
  /// Copies the metric with its state.
  Reduced& operator=(const Reduced& other);
  at::Tensor compute() const override;
  /// Forgets all values.
  void reset() override;
  /// Adds the values of another rank.
  void merge(const State& other) override;
  /// Weight and reduced value so far.
  State state_dict() const override;
  /// Replaces the values.
  void load_state_dict(const State& state) override;

 protected:
  /// Creates a metric without values.
  explicit Reduced(Kind kind);
  /// Adds all elements of a tensor.
  void take(const at::Tensor& values, double weight);
  /// Adds a number.
  void take(double value, double weight);

 private:
  Kind kind_;
  std::unique_ptr<detail::Reduction> reduction_;
};

/// Weighted mean of all values, as torchmetrics.MeanMetric.
class LEVIN_API Mean : public Reduced {
 public:
  Mean() : Reduced(Kind::kMean) {}
  /// Adds all elements of a tensor, each with this weight. Throws Error "observe.metric.weight"
  /// (below 0 or not finite) and "observe.metric.dtype" (complex).
  void update(const at::Tensor& values, double weight = 1) { take(values, weight); }
  /// Adds a number with this weight. Throws Error "observe.metric.weight".
  void update(double value, double weight = 1) { take(value, weight); }
};

/// Sum of all values, as torchmetrics.SumMetric; 0 if there are none.
class LEVIN_API Sum : public Reduced {
 public:
  Sum() : Reduced(Kind::kSum) {}
  /// Adds all elements of a tensor. Throws Error "observe.metric.dtype" for a complex tensor.
  void update(const at::Tensor& values) { take(values, 1); }
  /// Adds a number.
  void update(double value) { take(value, 1); }
};

/// Minimum of all values, as torchmetrics.MinMetric.
class LEVIN_API Min : public Reduced {
 public:
  Min() : Reduced(Kind::kMin) {}
  /// Adds all elements of a tensor. Throws Error "observe.metric.dtype" for a complex tensor.
  void update(const at::Tensor& values) { take(values, 1); }
  /// Adds a number.
  void update(double value) { take(value, 1); }
};

/// Maximum of all values, as torchmetrics.MaxMetric.
class LEVIN_API Max : public Reduced {
 public:
  Max() : Reduced(Kind::kMax) {}
  /// Adds all elements of a tensor. Throws Error "observe.metric.dtype" for a complex tensor.
  void update(const at::Tensor& values) { take(values, 1); }
  /// Adds a number.
  void update(double value) { take(value, 1); }
};

}  // namespace metrics
}  // namespace levin
