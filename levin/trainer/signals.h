#pragma once
// SIGTERM and SIGINT as a wish to stop: noted by a handler, read between steps.

#include <csignal>

namespace levin::detail {

/// Installs the handlers for its lifetime and puts back those there were. A second SIGINT ends the
/// program at once with exit code 130. One at a time in a process.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  /// The signal that came first, 0 for none.
  static int received();

 private:
  struct sigaction old_terminate_;
  struct sigaction old_interrupt_;
};

}  // namespace levin::detail
