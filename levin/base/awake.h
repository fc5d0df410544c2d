#pragma once
// AwakeTime: the time that a loop has waited, without the time for which its process was stopped
// (SIGSTOP, a suspended machine, a paused virtual one). A timeout counted by it does not blame
// peers that were stopped as well.
//
//   AwakeTime waited;
//   while (!ready()) { if (waited.look() > timeout) fail(); nap(100ms); }

#include <algorithm>
#include <chrono>

namespace levin::detail {

class AwakeTime {
 public:
  using Clock = std::chrono::steady_clock;
  /// longest: the most that counts between two calls of look(); the rest is taken for sleep.
  explicit AwakeTime(Clock::duration longest = std::chrono::seconds(1)) : longest_(longest) {}

  /// Time awake since construction. Call it much more often than `longest`.
  std::chrono::nanoseconds look() {
    const auto now = Clock::now();
    const Clock::duration passed = now - last_;
    slept_ = passed > longest_;
    awake_ += std::min(passed, longest_);
    last_ = now;
    return awake_;
  }
  /// Returns whether the process was stopped before the last look.
  bool slept() const { return slept_; }

 private:
  Clock::duration longest_;
  Clock::time_point last_ = Clock::now();
  Clock::duration awake_ = {};
  bool slept_ = false;
};

}  // namespace levin::detail
