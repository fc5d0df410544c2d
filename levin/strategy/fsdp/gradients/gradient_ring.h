#pragma once
// GradientRing: a few buffers that the ranks share, through which gradients go to the other ranks unit
// by unit. While one is summed the next one fills.
//
//   GradientRing ring(group, at::kFloat, at::kCPU, numel, 2);
//   std::optional<size_t> buffer = ring.take(/*is_sent_next=*/false);
//   ring.memory(*buffer).narrow(0, 0, n).copy_(gradient);
//   ring.sent(*buffer, reduce_scatter);   // free again when that is done

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "levin/comm/process_group.h"
#include "levin/shard/gradient_slot.h"

namespace levin::fsdp {

class GradientRing {
 public:
  using Count = shard::GradientSlot::Count;

  /// All ranks call it, and ask for the same.
  GradientRing(comm::ProcessGroup group, at::ScalarType type, at::Device device, int64_t numel,
               size_t num_buffers)
      : buffers_(num_buffers) {
    for (Buffer& buffer : buffers_) buffer.memory = group.allocate(numel, type, device);
  }

  /// Returns whether it serves units of so many elements, through so many buffers.
  bool fits(int64_t numel, size_t num_buffers) const {
    return num_buffers <= buffers_.size() && numel <= buffers_.front().memory.numel();
  }
  /// Takes a buffer for gradients that are sent next, or for gradients that are not yet complete.
  /// The latter get all buffers but one, so that a unit that comes later and is sent earlier finds
  /// one. Returns nothing if an incomplete unit must wait for other incomplete ones, or if tensors
  /// lie in all buffers.
  std::optional<size_t> take(bool is_sent_next) {
    const auto filling = std::ranges::count(buffers_, State::kFilling, &Buffer::state);
    const auto most = std::max<int64_t>(std::ssize(buffers_) - 1, 1);
    if (!is_sent_next && filling >= most) return std::nullopt;
    std::optional<size_t> free = find_free();
    while (!free && !under_way_.empty()) {
      Buffer& first = buffers_[under_way_.front()];
      under_way_.pop_front();
      std::exchange(first.work, {})->wait();
      first.state = State::kFree;
      free = find_free();
    }
    if (free) buffers_[*free].state = State::kFilling;
    return free;
  }

  const at::Tensor& memory(size_t buffer) const { return buffers_[buffer].memory; }
  /// The buffer is free as soon as the work is done.
  void sent(size_t buffer, std::shared_ptr<comm::Work> work) {
    buffers_[buffer].state = State::kSent;
    buffers_[buffer].work = std::move(work);
    under_way_.push_back(buffer);
  }

  void give_back(size_t buffer) { buffers_[buffer].state = State::kFree; }
  /// Waits for what was sent, and takes all buffers back.
  void drain() {
    for (const size_t buffer : std::exchange(under_way_, {})) {
      std::exchange(buffers_[buffer].work, {})->wait();
    }
    for (Buffer& buffer : buffers_) buffer.state = State::kFree;
  }

  /// A part of a buffer as memory for a tensor. The buffer is given to nobody else while that is
  /// there, however long; num_lent is one higher meanwhile.
  at::DataPtr lend(size_t buffer, int64_t element, const Count& num_lent) {
    const Buffer& from = buffers_[buffer];
    auto* data = static_cast<std::byte*>(from.memory.data_ptr()) +
                 element * static_cast<int64_t>(from.memory.element_size());
    ++*from.num_lent;
    ++*num_lent;
    return {data, new Lease{from.memory, from.num_lent, num_lent},
            [](void* lease) { delete static_cast<Lease*>(lease); }, from.memory.device()};
  }

 private:
  enum class State { kFree, kFilling, kSent };
  struct Buffer {
    at::Tensor memory;
    State state = State::kFree;
    std::shared_ptr<comm::Work> work = {};
    Count num_lent = std::make_shared<std::atomic<int64_t>>(0);
  };
  /// A part of a buffer that a tensor lies in, which may outlive the ring.
  struct Lease {
    at::Tensor memory;
    Count of_buffer;
    Count of_borrower;

    ~Lease() {
      --*of_borrower;
      --*of_buffer;
    }
  };

  std::optional<size_t> find_free() const {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].state == State::kFree && *buffers_[i].num_lent == 0) return i;
    }
    return std::nullopt;
  }

  std::vector<Buffer> buffers_;
  std::deque<size_t> under_way_;  ///< the first to end in front
};

}  // namespace levin::fsdp
