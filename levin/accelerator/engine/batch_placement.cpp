#include "levin/accelerator/engine/batch_placement.h"

#include "levin/xla/device/runtime.h"

namespace levin {

int64_t BatchPlacement::parts() const { return runtime_ == nullptr ? 1 : runtime_->num_devices(); }

Batch BatchPlacement::to_device(const Batch& batch) const {
  if (runtime_ == nullptr) return batch.to(device_, /*non_blocking=*/true);
  // What was computed between steps, as for a checkpoint, is to be no part of the next one: that
  // would be another program, and on several processes not that of the others.
  runtime_->sync();
  const xla::SplitScope split(*runtime_);
  return batch.to(device_);
}

void BatchPlacement::end_batch() const {
  if (runtime_ != nullptr) runtime_->sync();
}

}  // namespace levin
