#pragma once
// AwakeTime: how long somebody has waited who looks often. A process that is stopped (SIGSTOP, a
// machine that sleeps, a paused virtual one) does not look, and its peers may have been stopped
// with it: what it missed is not held against them.
//
//   AwakeTime waited;
//   while (!ready()) { if (waited.look() > timeout) fail(); nap(100ms); }

#include <algorithm>
#include <chrono>

namespace levin::detail {

class AwakeTime {
 public:
  using Clock = std::chrono::steady_clock;
  /// longest: between two looks; what is beyond it was slept.
  explicit AwakeTime(Clock::duration longest = std::chrono::seconds(1)) : longest_(longest) {}

  /// Since it was made. Call it much more often than that.
  std::chrono::nanoseconds look() {
    const auto now = Clock::now();
    const Clock::duration passed = now - last_;
    slept_ = passed > longest_;
    awake_ += std::min(passed, longest_);
    last_ = now;
    return awake_;
  }
  /// Whether the process was stopped before the last look.
  bool slept() const { return slept_; }

 private:
  Clock::duration longest_;
  Clock::time_point last_ = Clock::now();
  Clock::duration awake_ = {};
  bool slept_ = false;
};

}  // namespace levin::detail
