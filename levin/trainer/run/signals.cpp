#include "levin/trainer/run/signals.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace levin::detail {
namespace {

// A handler can reach nothing but a global, and may do little more than set one.
volatile std::sig_atomic_t received_signal = 0;

void on_signal(int signal) {
  if (received_signal != 0 && signal == SIGINT) _exit(128 + SIGINT);
  if (received_signal == 0) received_signal = signal;
}

struct Watched {
  int signal;
  bool taken = false;
  struct sigaction before = {};
};

struct Watch {
  std::mutex mutex;
  int64_t num_guards = 0;
  std::array<Watched, 2> signals = {{{SIGTERM}, {SIGINT}}};
};

Watch& watch() {
  static auto* instance = new Watch;
  return *instance;
}

bool is_handled_by(const struct sigaction& action, void (*handler)(int)) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == handler;
}

}  // namespace

SignalGuard::SignalGuard() {
  Watch& all = watch();
  const std::lock_guard lock(all.mutex);
  if (all.num_guards++ > 0) return;
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (Watched& watched : all.signals) {
    sigaction(watched.signal, nullptr, &watched.before);
    watched.taken = !is_handled_by(watched.before, SIG_IGN);
    if (watched.taken) sigaction(watched.signal, &action, nullptr);
  }
}

// Handlers that the program has installed meanwhile stay.
SignalGuard::~SignalGuard() {
  Watch& all = watch();
  const std::lock_guard lock(all.mutex);
  if (--all.num_guards > 0) return;
  for (const Watched& watched : all.signals) {
    struct sigaction now = {};
    sigaction(watched.signal, nullptr, &now);
    if (watched.taken && is_handled_by(now, on_signal)) {
      sigaction(watched.signal, &watched.before, nullptr);
    }
  }
}

int SignalGuard::received() { return received_signal; }

}  // namespace levin::detail
