#include "levin/trainer/signals.h"

#include <unistd.h>

namespace levin::detail {
namespace {

// A handler can reach nothing but a global, and may do little more than set one.
volatile std::sig_atomic_t received_signal = 0;

void on_signal(int signal) {
  if (received_signal != 0 && signal == SIGINT) _exit(128 + SIGINT);
  if (received_signal == 0) received_signal = signal;
}

}  // namespace

SignalGuard::SignalGuard() {
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, &old_terminate_);
  sigaction(SIGINT, &action, &old_interrupt_);
}

SignalGuard::~SignalGuard() {
  sigaction(SIGTERM, &old_terminate_, nullptr);
  sigaction(SIGINT, &old_interrupt_, nullptr);
}

int SignalGuard::received() { return received_signal; }

}  // namespace levin::detail
