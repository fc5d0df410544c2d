#pragma once
// Runs a part of a test in a process of its own, so that it can have its own limits or be killed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>

#include "tests/support/patience.h"

namespace levin::test {

constexpr int kSkipped = 77;
constexpr int kThrew = 99;

/// The child ends with what body returns, or by SIGALRM when it goes on for too long. A body that computes
/// with LibTorch calls at::set_num_threads(1) first: the threads of its pool stayed in the parent.
inline pid_t start_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(static_cast<unsigned>(std::min(patient_s(240), 3000.0)));
  int code = kThrew;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  ::_exit(code);
}

/// The exit code, or minus the signal that ended it.
inline int wait_for(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline int run_child(const std::function<int()>& body) { return wait_for(start_child(body)); }

/// Runs a disabled test of this program in a process of its own, its words into a file. The exit
/// code, or minus the signal that ended it.
inline int run_in_own_process(const std::string& test, const std::filesystem::path& log) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string filter = "--gtest_filter=" + test;
  return run_child([&]() -> int {
    const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::execl(self.c_str(), self.c_str(), "--gtest_also_run_disabled_tests", filter.c_str(), nullptr);
    return kThrew;
  });
}

}  // namespace levin::test
