#pragma once
// Metrics: numbers over a whole data set, right whatever the sizes of its batches.
// Updated by the module's steps, logged by name, read when the epoch ends, merged over ranks.
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

/// What is gathered stays on the device of what update is given; only reading compute()'s result
/// waits for it. merge takes another rank's state_dict; ranks may be merged in any grouping.
class LEVIN_API Metric {
 public:
  virtual ~Metric();

  /// 0-dim double, on the device of the samples; NaN when there were none.
  virtual at::Tensor compute() const = 0;
  virtual void reset() = 0;
  virtual void merge(const State& other) = 0;
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;

 protected:
  /// The value over no samples: NaN.
  static at::Tensor nothing();
};

namespace detail {
class Reduction;
}  // namespace detail

namespace metrics {

struct AccuracyOptions {
  int64_t top_k = 1;                         ///< right when the label is among the k highest scores
  std::optional<int64_t> ignore_index = {};  ///< samples of this label do not count
};

/// Part of the samples whose class is right: 0-dim float on the device of scores, NaN of nothing.
/// scores is [N, C] or [N, C, ...] with labels [N] or [N, ...]; or classes, integers in the shape
/// of labels. As torchmetrics.functional.accuracy(task="multiclass", average="micro"). Throws Error
/// "observe.metric.shape", "observe.metric.dtype", "observe.metric.top_k".
LEVIN_API at::Tensor accuracy(const at::Tensor& scores, const at::Tensor& labels,
                              const AccuracyOptions& options = {});

/// The same over many batches, counted in int64. Throws what accuracy throws.
class LEVIN_API Accuracy : public Metric {
 public:
  explicit Accuracy(AccuracyOptions options = {});

  void update(const at::Tensor& scores, const at::Tensor& labels);

  at::Tensor compute() const override;
  void reset() override;
  void merge(const State& other) override;
  /// {"total", "correct", "ignored"}: an integer and two int64 tensors, absent while undefined.
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  AccuracyOptions options_;
  int64_t total_ = 0;   // samples seen, ignored ones too
  at::Tensor correct_;  // 0-dim int64
  at::Tensor ignored_;  // 0-dim int64
};

/// What the four below share; made for them, not for users.
class LEVIN_API Reduced : public Metric {
 public:
  enum class Kind { kMean, kSum, kMin, kMax };
  ~Reduced() override;
  Reduced(const Reduced& other);
  Reduced& operator=(const Reduced& other);
  at::Tensor compute() const override;
  void reset() override;
  void merge(const State& other) override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  explicit Reduced(Kind kind);
  void take(const at::Tensor& values, double weight);
  void take(double value, double weight);

 private:
  Kind kind_;
  std::unique_ptr<detail::Reduction> reduction_;
};

/// Mean of all elements of all values, each with the weight of its value. Throws Error
/// "observe.metric.weight" (below 0 or not finite) and "observe.metric.dtype" (a complex value).
class LEVIN_API Mean : public Reduced {
 public:
  Mean() : Reduced(Kind::kMean) {}
  void update(const at::Tensor& values, double weight = 1) { take(values, weight); }
  void update(double value, double weight = 1) { take(value, weight); }
};

/// Of nothing: 0.
class LEVIN_API Sum : public Reduced {
 public:
  Sum() : Reduced(Kind::kSum) {}
  void update(const at::Tensor& values) { take(values, 1); }
  void update(double value) { take(value, 1); }
};

class LEVIN_API Min : public Reduced {
 public:
  Min() : Reduced(Kind::kMin) {}
  void update(const at::Tensor& values) { take(values, 1); }
  void update(double value) { take(value, 1); }
};

class LEVIN_API Max : public Reduced {
 public:
  Max() : Reduced(Kind::kMax) {}
  void update(const at::Tensor& values) { take(values, 1); }
  void update(double value) { take(value, 1); }
};

}  // namespace metrics
}  // namespace levin
