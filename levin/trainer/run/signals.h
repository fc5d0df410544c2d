#pragma once
// SIGTERM and SIGINT as a wish to stop: noted by a handler, read between steps.

namespace levin::detail {

/// While there is one, the handlers are installed; counted, so that fits may run within each other
/// and in several threads: the first notes the program's own, the last puts them back. A signal
/// that the program ignores stays ignored. A second SIGINT ends the program at once with exit code
/// 130.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  /// The signal that came first since there was no guard, 0 for none: all runs under way stop.
  static int received();
};

}  // namespace levin::detail
