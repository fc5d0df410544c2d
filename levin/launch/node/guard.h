#pragma once
// Guard: a small process beside the launcher that kills what is left of its ranks when the launcher
// has died. The kernel does so for the ranks themselves, but not for what they have started.

#include <sys/types.h>

#include "levin/base/posix.h"

namespace levin::launch {

class Guard {
 public:
  /// Throws Error "launch.program" when no process can be started.
  Guard();
  /// The guard ends, and kills nothing that was left to live by forget().
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// In a new process that leads its group, before it starts anything: whatever befalls the
  /// launcher from here on, the guard knows of it. Only calls that are safe after a fork.
  void watch_own_group() const noexcept;
  void forget(pid_t group);

 private:
  pid_t pid_ = -1;
  posix::Descriptor pipe_;
};

}  // namespace levin::launch
