#pragma once
// Presence: the ranks that still have data, where they may run out of it at different times. The
// part of Joinable that ddp, fsdp and zero share.
//
//   if (synchronize) begin_exchange();     // before a backward, on ranks that have a batch

#include <ATen/ops/full.h>

#include "levin/strategy/strategy.h"

namespace levin {

/// Gradients are reduced over all ranks. The mean over the ranks that are present is that mean,
/// scaled.
class Presence : public Joinable {
 public:
  void begin_join(bool by_present) override {
    check_join();
    joining_ = true;
    by_present_ = by_present;
  }

  bool shadow_step() final {
    if (!joining_) return false;
    end_exchange();
    if (count(false) == 0) {
      end_join();
      return false;
    }
    shadow_exchange();
    return true;
  }

  void end_join() final {
    joining_ = false;
    set_scale(1);
  }

 protected:
  /// is_mean: gradients are averaged, and not summed.
  Presence(const comm::ProcessGroup& group, bool is_mean) : ranks_(group), is_mean_(is_mean) {}

  /// Ranks that have a batch call it before each backward that synchronizes.
  void begin_exchange() { count(true); }
  /// Reduced gradients are multiplied with it from here on.
  virtual void set_scale(double scale) = 0;
  /// Waits for the exchange that was started.
  virtual void end_exchange() = 0;
  /// One backward's exchange, with no gradient of this rank's.
  virtual void shadow_exchange() = 0;

 private:
  int64_t count(bool here) {
    if (!joining_) return ranks_.size();
    const at::Tensor present = at::full({1}, here ? 1 : 0, at::kLong);
    ranks_.all_reduce(present, ReduceOp::kSum);
    const auto count = present.item<int64_t>();
    const bool scales = is_mean_ && by_present_ && count > 0;
    set_scale(scales ? static_cast<double>(ranks_.size()) / static_cast<double>(count) : 1);
    return count;
  }

  comm::ProcessGroup ranks_;
  bool is_mean_;
  bool joining_ = false;
  bool by_present_ = false;
};

}  // namespace levin
