#pragma once
// Presence: the ranks that still have data, where they may run out of it at different times. What ddp, fsdp and zero
// have in common of Joinable.
//
//   if (synchronize) begin_exchange();     // before a backward, on ranks that have a batch

#include "levin/strategy/strategy.h"

namespace levin {

/// Gradients are reduced over all ranks; a mean over those that are present is that, scaled.
class Presence : public Joinable {
 public:
  void begin_join(bool by_present) override;
  bool shadow_step() final;
  void end_join() final;

 protected:
  /// is_mean: gradients are averaged, and not summed.
  Presence(const comm::ProcessGroup& group, bool is_mean) : ranks_(group), is_mean_(is_mean) {}

  /// Ranks that have a batch call it before each backward that synchronizes.
  void begin_exchange() { count(true); }
  /// What reduced gradients are multiplied with from here on.
  virtual void set_scale(double scale) = 0;
  /// What was started is waited for.
  virtual void end_exchange() = 0;
  /// One backward's exchange, with no gradient of this rank's.
  virtual void shadow_exchange() = 0;

 private:
  int64_t count(bool here);

  comm::ProcessGroup ranks_;
  bool is_mean_;
  bool joining_ = false;
  bool by_present_ = false;
};

}  // namespace levin
