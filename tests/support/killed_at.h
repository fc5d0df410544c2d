#pragma once
// A process that is killed between two of its steps on the disk: just before the first, second, ...
// of its system calls that rename or remove something.
//
//   for (int64_t call = 1;; ++call) {
//     const End end = killed_at(call, [&] { save(folder); return 0; });
//     if (end == End::kCannotTrace) GTEST_SKIP();
//     check(folder);
//     if (end == End::kEnded) break;  // it came through with fewer calls
//   }

#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <csignal>
#include <cstdint>
#include <set>

#include "tests/support/child_process.h"

namespace levin::test {

enum class End { kKilled, kEnded, kFailed, kCannotTrace };

inline bool moves_or_removes(uint64_t call) {
  switch (call) {
    case SYS_renameat2:
    case SYS_renameat:
    case SYS_unlinkat:
#ifdef SYS_rename
    case SYS_rename:
    case SYS_unlink:
    case SYS_rmdir:
#endif
      return true;
    default:
      return false;
  }
}

/// Every step of a save on the disk, but for writes that sockets have too.
inline bool changes_the_disk(uint64_t call) {
  switch (call) {
    case SYS_mkdirat:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_pwrite64:
    case SYS_fsync:
#ifdef SYS_mkdir
    case SYS_mkdir:
#endif
      return true;
    default:
      return moves_or_removes(call);
  }
}

/// At call number `number` of those that `counts` says of, by any of its threads.
inline End killed_at(int64_t number, const std::function<int()>& body,
                     bool (*counts)(uint64_t call) = moves_or_removes) {
  const pid_t child = start_child([&] {
    ::setpgid(0, 0);  // so that its threads can be waited for, and no other process
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return kSkipped;
    ::raise(SIGSTOP);
    return body();
  });
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return End::kCannotTrace;
  const auto options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE;
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, options);
  std::set<pid_t> known = {child};
  pid_t thread = child;
  int signal = 0;
  bool is_killed = false;
  for (int64_t seen = 0;;) {
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal);
    thread = ::waitpid(-child, &status, __WALL);
    if (thread < 0) return End::kFailed;
    if (!WIFSTOPPED(status)) {
      if (thread != child) continue;  // a thread of it has ended
      if (is_killed) return End::kKilled;
      return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? End::kEnded : End::kFailed;
    }
    const bool is_new = known.insert(thread).second;
    const bool at_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    const bool at_clone = status >> 8 == (SIGTRAP | PTRACE_EVENT_CLONE << 8);
    const bool at_start = is_new && WSTOPSIG(status) == SIGSTOP;
    signal = at_call || at_clone || at_start ? 0 : WSTOPSIG(status);
    if (!at_call || is_killed) continue;
    struct __ptrace_syscall_info info{};
    ::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
    const bool is_entry = info.op == PTRACE_SYSCALL_INFO_ENTRY;
    if (!is_entry || !counts(info.entry.nr) || ++seen < number) continue;
    is_killed = true;
    ::kill(child, SIGKILL);
  }
}

}  // namespace levin::test
