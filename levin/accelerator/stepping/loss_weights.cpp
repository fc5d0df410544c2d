#include "levin/accelerator/stepping/loss_weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "levin/base/check.h"
#include "levin/comm/operators.h"

namespace levin {

void LossWeights::make_sum() {
  if (!sum_.defined()) sum_ = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
}

void LossWeights::begin_window() {
  if (sum_.defined()) sum_.zero_();
}

// To look at a number of another device is to wait for it, and no recording has one.
bool LossWeights::counts_nothing(const at::Tensor& weight) const {
  return weight.is_cpu() && !records_ && weight.item<double>() == 0.0;
}

bool LossWeights::batch_counts_nothing() {
  if (!batch_ || !counts_nothing(*batch_)) return false;
  check_same();
  batch_.reset();
  return true;
}

at::Tensor LossWeights::weighted(const at::Tensor& loss, int64_t window_size,
                                 std::optional<double> divisor) {
  // A mean is the mean of its window, whatever it weighs.
  const bool is_all = window_size == 1 && is_alone();
  if (!is_all) check_same();
  // A recorded step is to leave no tensor with this.
  const std::optional<at::Tensor> own = std::exchange(batch_, std::nullopt);
  if (is_all) return loss;
  if (!own && divisor) return loss / *divisor;
  if (!own) return window_size == 1 ? loss : loss / window_size;
  make_sum();
  // It does not wait for the device: a source that is not pinned has been read at return.
  const at::Tensor weight = own->to(loss.device(), at::kDouble, /*non_blocking=*/true);
  sum_.add_(weight);
  return loss * weight.to(loss.scalar_type());
}

void LossWeights::check_same() {
  const bool weighs = batch_.has_value();
  LEVIN_CHECK(
      weighing_.weighs.value_or(weighs) == weighs, "trainer.loss_weight",
      "set_loss_weight was called for some batches but not for others; call it for all batches");
  weighing_.weighs = weighs;
}

// The ranks agree once; a rank that has skipped all of its batches so far learns it from the
// others. If steps are recorded none may be skipped.
void LossWeights::agree() {
  if (weighing_.is_agreed || records_) return;
  const bool weighs = world_.any(weighing_.weighs.value_or(false));
  LEVIN_CHECK(
      weighing_.weighs.value_or(weighs) == weighs, "trainer.loss_weight",
      "set_loss_weight was called on other ranks but not on this one; call it on all ranks");
  weighing_.weighs = weighs;
  weighing_.is_agreed = true;
}

bool LossWeights::weigh_window(int64_t window_size) {
  if (!is_alone()) agree();
  if (!weighing_.weighs.value_or(false) || (is_alone() && window_size == 1)) return false;
  make_sum();
  window_ = sum_;
  if (is_alone()) return true;
  window_ = sum_.clone();
  comm::call_all_reduce({*window_}, world_, ReduceOp::kMean);
  return true;
}

}  // namespace levin
