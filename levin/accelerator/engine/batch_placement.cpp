#include "levin/accelerator/engine/batch_placement.h"

#include "levin/xla/device/runtime.h"

namespace levin {

int64_t BatchPlacement::parts() const { return runtime_ == nullptr ? 1 : runtime_->num_devices(); }

Batch BatchPlacement::to_device(const Batch& batch) const {
  if (runtime_ == nullptr) return batch.to(device_, /*non_blocking=*/true);
  // Operators between steps, as for a checkpoint, must not become part of the next step's program:
  // it would be compiled again, and on several processes it would differ from the others' program.
  runtime_->sync();
  const xla::SplitScope split(*runtime_);
  return batch.to(device_);
}

void BatchPlacement::end_batch() const {
  if (runtime_ != nullptr) runtime_->sync();
}

}  // namespace levin
