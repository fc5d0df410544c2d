#include "levin/trainer/parts/part_sizes.h"

#include <ATen/ops/tensor.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>

#include "levin/accelerator/engine/host_memory.h"
#include "levin/base/check.h"
#include "levin/base/log.h"

namespace levin::detail {
namespace {

constexpr int64_t kGrowth = 4;
constexpr double kShare =
    0.8;  ///< of the memory that is left; the rest is for allocations beside it

int64_t used_bytes(const at::Device& device) {
  if (!device.is_cuda()) return resident_bytes();
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[0].current;
}

void reset_peak(const at::Device& device) {
  if (!device.is_cuda()) return reset_peak_bytes();
  at::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

int64_t peak_of(const at::Device& device) {
  if (!device.is_cuda()) return peak_bytes();
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[0].peak;
}

int64_t gpu_bytes_left(const at::Device& device) {
  auto* const allocator = at::getDeviceAllocator(device.type());
  const auto stats = allocator->getDeviceStats(device.index());
  const auto free = static_cast<int64_t>(allocator->getMemoryInfo(device.index()).first);
  return free + stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
}

}  // namespace

void PartSizes::begin_batch(const Batch& batch) {
  const int64_t own = batch.size();
  batch_bytes_ = 0;
  for (const auto& [name, tensor] : batch) {
    LEVIN_CHECK(
        tensor.dim() > 0 && tensor.size(0) == own, "trainer.accumulate",
        "accumulate_grad_batches = auto cuts a batch by its samples, but dim 0 of '{}' is {} "
        "and the batch has {} samples; set a number, and let the loader give smaller batches",
        name, tensor.dim() > 0 ? tensor.size(0) : 0, own);
    batch_bytes_ += static_cast<int64_t>(tensor.nbytes());
  }
  const bool measures = !is_settled_ || batch_bytes_ > std::max(largest_, chosen_ * parts_);
  const int64_t parts =
      chosen_ == 0 ? 1 : (batch_bytes_ + chosen_ - 1) / std::max<int64_t>(chosen_, 1);
  at::Tensor most = at::tensor({own, int64_t{measures}, parts}, at::kLong);
  if (engine_.num_processes() > 1) most = engine_.reduce(most, ReduceOp::kMax);
  samples_ = most[0].item<int64_t>();
  measures_ = most[1].item<int64_t>() != 0;
  parts_ = std::clamp<int64_t>(most[2].item<int64_t>(), 1, std::max<int64_t>(samples_, 1));
  largest_before_ = largest_;
  if (measures_) chosen_ = 0;
}

int64_t PartSizes::bytes_of(int64_t samples) const {
  if (samples_ == 0) return 0;
  return static_cast<int64_t>(static_cast<double>(batch_bytes_) / static_cast<double>(samples_) *
                              static_cast<double>(samples));
}

bool PartSizes::fits(int64_t size) const {
  const int64_t more = forecast_.peak_of(bytes_of(size)).value_or(0);
  const at::Device device = engine_.device();
  if (device.is_cuda()) {
    return static_cast<double>(more) <= kShare * static_cast<double>(gpu_bytes_left(device));
  }
  return std::ranges::all_of(memory_limits(), [&](const MemoryLimit& limit) {
    // The ranks of this machine share all memory but that of the process' own limits.
    const auto sharing = limit.kills ? static_cast<double>(engine_.rank().local_world_size) : 1.0;
    return static_cast<double>(more) * sharing <= kShare * static_cast<double>(limit.left);
  });
}

int64_t PartSizes::next(int64_t left) {
  if (!measures_) return std::min(left, (samples_ + parts_ - 1) / parts_);
  int64_t own = left;
  if (measured_ < 2) {
    own = 1;
  } else {
    const int64_t most = kGrowth * std::max<int64_t>(largest_, 1);
    while (own > 1 && bytes_of(own) > most) own = (own + 1) / 2;
    return_freed_memory();
    while (own > 1 && !fits(own)) own = (own + 1) / 2;
  }
  if (engine_.num_processes() == 1) return own;
  return engine_.reduce(at::tensor({own}, at::kLong), ReduceOp::kMin).item<int64_t>();
}

void PartSizes::begin_part() {
  if (!measures_) return;
  return_freed_memory();
  reset_peak(engine_.device());
  used_ = used_bytes(engine_.device());
}

// The first part also allocates the gradients.
void PartSizes::end_part(int64_t size) {
  if (!measures_) return;
  const int64_t bytes = bytes_of(size);
  if (measured_++ > 0) {
    forecast_.note(bytes, std::max<int64_t>(0, peak_of(engine_.device()) - used_));
  }
  largest_ = std::max(largest_, bytes);
  chosen_ = std::max(chosen_, bytes);
}

// A batch that has found no larger part than the batches before shows that these fit beside what the
// first step of the optimizer has allocated.
void PartSizes::end_batch() {
  if (!measures_) return;
  const bool was_settled = is_settled_;
  is_settled_ = largest_ == largest_before_;
  if (!is_settled_ || was_settled) return;
  const int64_t parts = chosen_ == 0 ? 1 : (batch_bytes_ + chosen_ - 1) / chosen_;
  if (parts == 1) return;
  keep_no_freed_memory();  // what a process near its limit keeps would be missing for the next part
  return_freed_memory();
  log::info(
      "trainer: a batch of {} samples does not fit into memory and is trained on in {} parts; the "
      "gradient is that of the whole batch",
      samples_, parts);
}

}  // namespace levin::detail
