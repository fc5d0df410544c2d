#pragma once
// A process that can write small files alone: a disk that fails one of several.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

namespace levin::test {

/// From now on a file of this process ends at that many bytes; what it says goes nowhere, since that
/// may be a file too. For child processes only.
inline void limit_files(rlim_t bytes) {
  std::signal(SIGXFSZ, SIG_IGN);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace levin::test
