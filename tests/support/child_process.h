#pragma once
// Runs a part of a test in a process of its own, so that it can have its own limits or be killed.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>

namespace levin::test {

constexpr int kSkipped = 77;
constexpr int kThrew = 99;

/// The child ends with what body returns, or by SIGALRM after two minutes. A body that computes
/// with LibTorch calls at::set_num_threads(1) first: the threads of its pool stayed in the parent.
inline pid_t start_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(120);
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

}  // namespace levin::test
