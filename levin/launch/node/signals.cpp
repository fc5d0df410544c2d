#include "levin/launch/node/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string>
#include <thread>

#include "levin/base/check.h"

namespace levin::launch {
namespace {

constexpr std::array kHandled = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE, SIGCHLD};

// A handler can reach nothing but globals.
volatile sig_atomic_t signal_pipe = -1;
volatile sig_atomic_t signal_owner = 0;

void put_signal(int number) {
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = ::write(signal_pipe, &byte, 1);
}

void keep_signal(int number) {
  const int error = errno;
  // A child that has not yet become its program shares the pipe.
  if (::getpid() == signal_owner) put_signal(number);
  errno = error;
}

void read_signals_from_input() {
  std::string digits;
  char letter = 0;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, &letter, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    if (letter != '\n') {
      digits += letter;
      continue;
    }
    int number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (number > 0) put_signal(number);
    digits.clear();
  }
  put_signal(SIGHUP);
}

}  // namespace

Signals::Signals(bool from_input) {
  int ends[2];
  LEVIN_CHECK(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "launch.program",
              "cannot make a pipe: {}", posix::reason(errno));
  read_end_ = posix::Descriptor(ends[0]);
  write_end_ = posix::Descriptor(ends[1]);
  signal_pipe = ends[1];
  signal_owner = ::getpid();
  for (size_t i = 0; i < kHandled.size(); ++i) {
    struct sigaction action = {};
    action.sa_handler = kHandled[i] == SIGPIPE   ? SIG_IGN
                        : kHandled[i] == SIGCHLD ? SIG_DFL
                                                 : keep_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(kHandled[i], &action, &old_[i]);
  }
  if (from_input) std::thread(read_signals_from_input).detach();
}

Signals::~Signals() {
  for (size_t i = 0; i < kHandled.size(); ++i) ::sigaction(kHandled[i], &old_[i], nullptr);
  signal_pipe = -1;
}

std::optional<int> Signals::take() {
  unsigned char number = 0;
  if (::read(read_end_.number(), &number, 1) != 1) return std::nullopt;
  return number;
}

}  // namespace levin::launch
