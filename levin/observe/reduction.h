#pragma once
// Reduction: the running mean, sum, minimum or maximum of scalars, on whatever device they lie.
// Stands under the metrics and under every value a step logs; nothing here waits for the device
// except read_scalars.
//
//   detail::Reduction mean(detail::Reduction::Kind::kMean);
//   mean.add(loss, 32);                                   // 32 samples; the sum stays with loss
//   double value = detail::read_scalars({mean.value()})[0];

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <optional>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin::detail {

/// Ordinary tensors without gradients, also inside the inference mode of a validation step: a sum
/// made there as an inference tensor could not be added to once that mode is left.
struct OrdinaryTensors {
  c10::InferenceMode not_inference{false};
  at::NoGradGuard no_grad;
};

/// The one element of a dense tensor in host memory, read without running an operator; nothing for
/// every other tensor (another device, complex, lazily negated, a subclass).
LEVIN_API std::optional<double> host_value(const at::Tensor& scalar);

/// Values of 0-dim tensors, with one wait for each run of tensors that lie on one device.
LEVIN_API std::vector<double> read_scalars(const std::vector<at::Tensor>& scalars);

/// Sums in double: exact to the last bit for 2^29 float values of like size. Values in host memory
/// are reduced there, others on their device; value() joins the two parts. On XLA each operator
/// would run a program, so values there are kept, read once they have long been ready, and reduced
/// on the host: value() waits for them. A value type.
class LEVIN_API Reduction {
 public:
  enum class Kind { kMean, kSum, kMin, kMax };

  explicit Reduction(Kind kind);

  /// Takes a value that stands for `weight` samples; weight 0 takes nothing, NaN included. Only the
  /// mean weighs. The tensor has one element and is not kept, unless it is on XLA: then it must not
  /// change.
  void add(double value, double weight = 1);
  void add(const at::Tensor& value, double weight = 1);
  /// Adds a value that is already the sum over several samples, each with the weight `factor`.
  void add(const at::Tensor& value, double factor, double weight);

  bool empty() const { return weight_ == 0; }
  Kind kind() const { return kind_; }
  /// 0-dim double; of nothing: 0 for the sum, NaN for the others. NaN once a value was NaN.
  at::Tensor value() const;
  /// The same as a number, where no part of it lies on a device.
  std::optional<double> host() const;

  /// Remembers what was added so far, without waiting or copying; rewind() forgets what came since.
  void mark();
  void rewind();

  void reset();
  void merge(const State& other);
  /// {"weight", "host", "device"}; the tensor stays on its device and is never changed in place.
  State state_dict() const;

 private:
  struct Unread {
    at::Tensor value;
    double factor;
  };

  void read(size_t count) const;
  void combine(double value) const;
  void combine(const at::Tensor& value, double factor);
  at::Tensor memory_beside();
  double finish(double total) const;

  Kind kind_;
  double weight_ = 0;
  mutable double host_;
  mutable std::vector<Unread> unread_;  // on XLA, oldest first
  at::Tensor device_;  // 0-dim double, undefined until a value came from a device; copied on write
  at::Tensor spare_;   // memory for the copy

  struct Mark {
    double weight = 0;
    double host = 0;
    at::Tensor device = {};
    int64_t unread = 0;
  };
  std::optional<Mark> marked_;
  int64_t unread_ever_ = 0;  // values that were unread once
};

}  // namespace levin::detail
