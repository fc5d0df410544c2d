#include "levin/trainer/run/stopping.h"

#include <ATen/ops/empty.h>

#include "levin/trainer/run/signals.h"

namespace levin::detail {

void Stopping::agree(bool between_steps, bool is_out_of_time) {
  constexpr int64_t kStepsUnasked = 10;
  const bool is_quick = world_.size() == 1 || world_.backend() == "shm";
  if (between_steps && !is_quick && ++steps_unasked_ < kStepsUnasked) return;
  steps_unasked_ = 0;
  signal_ = SignalGuard::received();
  wanted_ = is_requested() || is_out_of_time;
  if (world_.size() == 1) return;
  const at::Tensor words = at::empty({2}, at::kInt);
  auto* word = words.mutable_data_ptr<int>();
  word[0] = signal_;
  word[1] = wanted_;
  world_.all_reduce(words, ReduceOp::kMax);
  signal_ = word[0];
  wanted_ = word[1] != 0;
}

}  // namespace levin::detail
