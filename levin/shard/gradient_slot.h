#pragma once
// GradientSlot: where the gradient of a sharded parameter is on its way to the other ranks. Not for
// users. strategy/fsdp/gradients moves it from state to state:
//
//   kAbsent --------> kInBuffer   it was copied into the unit's buffer
//      |   \--------> kWaiting    no buffer was free, or a tensor that lies in its place is kept
//      v                  |
//    kLent ---> kInPlace  +-----> kInBuffer
//
// kLent: its place in the buffer was given to the tensor that backward makes next. kInPlace: that
// tensor was the gradient, so that nothing is copied.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace levin::shard {

struct GradientSlot {
  enum class State { kAbsent, kLent, kInPlace, kInBuffer, kWaiting };
  using Count = std::shared_ptr<std::atomic<int64_t>>;

  bool trains = false;  ///< the parameter has a place among the unit's gradients
  size_t number = 0;    ///< in the layout of those
  State state = State::kAbsent;
  /// Another tensor came into its place than its gradient: its place is lent no more.
  bool is_never_lent = false;
  Count num_lent = std::make_shared<std::atomic<int64_t>>(0);  ///< tensors that lie in its place

  at::Tensor waiting = {};  ///< full gradient in kWaiting
  /// Full gradient of this rank's batches that did not synchronize, and its version when .grad was last set to it.
  at::Tensor accumulated = {};
  int64_t accumulated_version = 0;
  at::Tensor reduced =
      {};  ///< rows: the gradient that was reduced over the ranks before this backward

  bool has_arrived() const { return state != State::kAbsent && state != State::kLent; }
  void clear() {
    waiting.reset();
    accumulated.reset();
    reduced.reset();
  }
};

}  // namespace levin::shard
