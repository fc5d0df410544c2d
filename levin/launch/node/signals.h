#pragma once
// Signals: those sent to the launcher, as something to poll.

#include <signal.h>

#include <array>
#include <optional>

#include "levin/base/posix.h"

namespace levin::launch {

/// While it lives SIGTERM, SIGINT, SIGHUP and SIGUSR1 are kept here instead of ending the process,
/// a closed pipe is an error of write(), and ended children stay to be asked how (SIGCHLD),
/// whatever the program does with them. One at a time.
class Signals {
 public:
  /// from_input: numbers of signals, one a line, are taken from stdin too; its end counts as
  /// SIGHUP. That is how the launcher of a hostfile reaches the others, as ssh forwards no signal.
  explicit Signals(bool from_input = false);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Readable when a signal has come.
  int descriptor() const { return read_end_.number(); }
  /// The oldest one not yet taken.
  std::optional<int> take();

 private:
  posix::Descriptor read_end_;
  posix::Descriptor write_end_;
  std::array<struct sigaction, 6> old_ = {};
};

}  // namespace levin::launch
