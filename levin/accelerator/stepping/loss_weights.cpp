#include "levin/accelerator/stepping/loss_weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "levin/base/check.h"
#include "levin/comm/operators.h"

namespace levin {

void LossWeights::make_sum() {
  if (!sum_.defined()) sum_ = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
}

void LossWeights::begin_group() {
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

at::Tensor LossWeights::weighted(const at::Tensor& loss, int64_t group_size) {
  // A mean is the mean of its group, whatever it weighs.
  const bool is_all = group_size == 1 && is_alone();
  if (!is_all) check_same();
  // A recorded step is to leave no tensor with this.
  const std::optional<at::Tensor> own = std::exchange(batch_, std::nullopt);
  if (is_all) return loss;
  if (!own) return group_size == 1 ? loss : loss / group_size;
  make_sum();
  // Without waiting for what the device still does: what is not pinned has been read at return.
  const at::Tensor weight = own->to(loss.device(), at::kDouble, /*non_blocking=*/true);
  sum_.add_(weight);
  return loss * weight.to(loss.scalar_type());
}

void LossWeights::check_same() {
  const bool weighs = batch_.has_value();
  LEVIN_CHECK(weighs_.value_or(weighs) == weighs, "trainer.loss_weight",
              "set_loss_weight was called for some batches and not for others; call it for all of "
              "them");
  weighs_ = weighs;
}

// Once; a rank that has skipped all of its batches so far learns it from the others. Where steps
// are recorded none may be skipped.
void LossWeights::agree() {
  if (agreed_ || records_) return;
  const bool weighs = world_.any(weighs_.value_or(false));
  LEVIN_CHECK(weighs_.value_or(weighs) == weighs, "trainer.loss_weight",
              "set_loss_weight was called on other ranks and not on this one; call it on all");
  weighs_ = weighs;
  agreed_ = true;
}

std::optional<at::Tensor> LossWeights::of_group(int64_t group_size) {
  if (!is_alone()) agree();
  if (!weighs_.value_or(false) || (is_alone() && group_size == 1)) return std::nullopt;
  if (is_alone()) return sum_;
  make_sum();
  const at::Tensor weight = sum_.clone();
  comm::call_all_reduce({weight}, world_, ReduceOp::kMean);
  return weight;
}

}  // namespace levin
