#include "levin/launch/node/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "levin/base/check.h"

namespace levin::launch {
namespace {

constexpr int kMostGroups = 4096;

// No descriptor but the pipe may stay open: someone may wait for the end of the launcher's output.
void keep_only(int pipe) {
  if (pipe > 0) ::syscall(SYS_close_range, 0U, static_cast<unsigned>(pipe) - 1, 0U);
  ::syscall(SYS_close_range, static_cast<unsigned>(pipe) + 1, ~0U, 0U);
}

// In the guard: groups come as numbers, those to forget as negative ones; the end of the pipe is
// the end of the launcher. Only calls that are safe after a fork.
[[noreturn]] void stand_guard(int pipe) {
  ::setsid();
  ::prctl(PR_SET_NAME, "levin-guard");
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE}) ::signal(number, SIG_IGN);
  keep_only(pipe);
  pid_t groups[kMostGroups];
  int count = 0;
  pid_t message = 0;
  for (;;) {
    const ssize_t bytes = ::read(pipe, &message, sizeof message);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != sizeof message) break;
    if (message > 0 && count < kMostGroups) groups[count++] = message;
    for (int i = 0; i < count; ++i) {
      if (groups[i] == -message) groups[i--] = groups[--count];
    }
  }
  for (int i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

Guard::Guard() {
  int ends[2];
  LEVIN_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "launch.program", "cannot make a pipe: {}",
              posix::reason(errno));
  posix::Descriptor read_end(ends[0]);
  pipe_ = posix::Descriptor(ends[1]);
  pid_ = ::fork();
  if (pid_ == 0) stand_guard(ends[0]);
  LEVIN_CHECK(pid_ > 0, "launch.program", "cannot start another process: {}", posix::reason(errno));
}

Guard::~Guard() {
  pipe_.close();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::watch_own_group() const noexcept {
  const pid_t group = ::getpid();
  while (::write(pipe_.number(), &group, sizeof group) < 0 && errno == EINTR) {
  }
}

void Guard::forget(pid_t group) {
  const pid_t message = -group;
  posix::write_all(pipe_, std::as_bytes(std::span(&message, 1)));
}

}  // namespace levin::launch
