#pragma once
// GradientRing: a few buffers that the ranks share, through which gradients go to the other ranks unit
// by unit. While one is summed the next one fills.
//
//   GradientRing ring(group, at::kFloat, at::kCPU, numel, 2);
//   std::optional<size_t> buffer = ring.take(/*is_sent_next=*/false);
//   ring.memory(*buffer).narrow(0, 0, n).copy_(gradient);
//   ring.sent(*buffer, group.reduce_scatter(...));   // free again when that is done

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "levin/comm/process_group.h"

namespace levin::fsdp {

class GradientRing {
 public:
  using Count = std::shared_ptr<std::atomic<int64_t>>;

  /// All ranks call it, and ask for the same.
  GradientRing(comm::ProcessGroup group, at::ScalarType type, at::Device device, int64_t numel,
               size_t num_buffers);

  /// Whether it serves units of so many elements, through so many buffers.
  bool fits(int64_t numel, size_t num_buffers) const;
  /// For gradients of which some are still to come, or for those that are sent next. Of the first
  /// kind all buffers but one are given, so that what comes later and is sent earlier finds one.
  /// None where that has to wait for others of the first kind; or where tensors lie in all buffers.
  std::optional<size_t> take(bool is_sent_next);
  const at::Tensor& memory(size_t buffer) const { return buffers_[buffer].memory; }
  /// The buffer is free as soon as the work is done.
  void sent(size_t buffer, comm::Work work);
  void give_back(size_t buffer) { buffers_[buffer].state = State::kFree; }
  /// Waits for what was sent, and takes all buffers back.
  void drain();

  /// A part of a buffer as memory for a tensor. The buffer is given to nobody else while that is
  /// there, however long; num_lent is one higher meanwhile.
  at::DataPtr lend(size_t buffer, int64_t element, const Count& num_lent);

 private:
  enum class State { kFree, kFilling, kSent };
  struct Buffer {
    at::Tensor memory;
    State state = State::kFree;
    comm::Work work = {};
    Count num_lent = std::make_shared<std::atomic<int64_t>>(0);
  };
  std::optional<size_t> find_free() const;

  std::vector<Buffer> buffers_;
  std::deque<size_t> under_way_;  ///< the first to end in front
};

}  // namespace levin::fsdp
