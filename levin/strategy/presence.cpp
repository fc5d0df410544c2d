#include "levin/strategy/presence.h"

#include <ATen/ops/full.h>

namespace levin {

void Presence::begin_join(bool by_present) {
  joining_ = true;
  by_present_ = by_present;
}

void Presence::end_join() {
  joining_ = false;
  set_scale(1);
}

bool Presence::shadow_step() {
  if (!joining_) return false;
  end_exchange();
  if (count(false) == 0) {
    end_join();
    return false;
  }
  shadow_exchange();
  return true;
}

int64_t Presence::count(bool here) {
  if (!joining_) return ranks_.size();
  const at::Tensor present = at::full({1}, here ? 1 : 0, at::kLong);
  ranks_.all_reduce(present, ReduceOp::kSum);
  const auto count = present.item<int64_t>();
  const bool scales = is_mean_ && by_present_ && count > 0;
  set_scale(scales ? static_cast<double>(ranks_.size()) / static_cast<double>(count) : 1);
  return count;
}

}  // namespace levin
