#pragma once
// Process: one program that was started, in a process group of its own.
// The kernel kills it when its launcher dies, however that happens, and the guard what it started.
//
//   Process process = Process::start({.command = {"./train"}, .variables = {{"RANK", "0"}}},
//   guard); poll(process.descriptor()) ...                    // readable once it has ended const
//   int status = process.reap();                // as waitpid gives it

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/posix.h"
#include "levin/launch/node/guard.h"

namespace levin::launch {

struct ProcessSpec {
  std::vector<std::string> command;  ///< the program (looked for in PATH) and its arguments
  std::string program = {};          ///< the file to run where it is not command[0]
  std::vector<std::pair<std::string, std::string>> variables = {};  ///< beside this process's own
  int input = -1;  ///< its stdin, stdout and stderr; -1: those of this process
  int output = -1;
  int error = -1;
  std::vector<int> cpus = {};  ///< CPUs that it may run on; empty: this process' CPUs
};

class Process {
 public:
  /// From the main thread only: the kernel takes the end of the thread that starts a process for
  /// the end of the launcher. Throws Error "launch.program" when it cannot be run.
  /// `guard` must outlive the process.
  static Process start(const ProcessSpec& spec, Guard& guard);

  pid_t pid() const { return pid_; }
  /// Readable once the process has ended.
  int descriptor() const { return descriptor_.number(); }
  /// To the process and all it has started, if any of them is left.
  void signal(int number) const;
  /// Waits for its end, kills the processes that it left behind, and returns the status of waitpid;
  /// nothing if the program has let somebody else take it.
  std::optional<int> reap();

 private:
  Process(pid_t pid, posix::Descriptor descriptor, Guard& guard)
      : pid_(pid), descriptor_(std::move(descriptor)), guard_(&guard) {}

  pid_t pid_;
  posix::Descriptor descriptor_;
  Guard* guard_;
};

}  // namespace levin::launch
