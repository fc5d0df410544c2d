#pragma once
// A process that can write small files alone: a disk that fails one of several.

#include <sys/resource.h>

#include <csignal>

namespace levin::test {

/// From now on a file of this process ends at that many bytes. For child processes only.
inline void limit_files(rlim_t bytes) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace levin::test
