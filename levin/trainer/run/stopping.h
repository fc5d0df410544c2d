#pragma once
// Stopping: who wants the run to end, and that all ranks end at the same step.

#include <cstdint>
#include <string>
#include <utility>

#include "levin/comm/process_group.h"

namespace levin::detail {

class Stopping {
 public:
  explicit Stopping(comm::ProcessGroup& world) : world_(world) {}

  /// Asks to stop after the step that is under way, on this rank.
  void request(std::string reason) { reason_ = std::move(reason); }
  bool is_requested() const { return !reason_.empty(); }

  /// Makes all ranks stop when one of them has a reason: a signal, a request, is_out_of_time.
  /// Between steps over a network they ask each other only now and then.
  void agree(bool between_steps, bool is_out_of_time);
  /// Returns the agreed signal. It ends the run on every rank, whichever rank got it; 0: none.
  int signal() const { return signal_; }
  /// On this rank alone, which has no more steps.
  void end_by(int signal) { signal_ = signal; }
  bool is_wanted() const { return wanted_; }

 private:
  comm::ProcessGroup& world_;
  std::string reason_;
  int signal_ = 0;
  bool wanted_ = false;
  int64_t steps_unasked_ = 0;
};

}  // namespace levin::detail
