#include "levin/strategy/fsdp/write_trap.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <mutex>
#include <vector>

namespace levin::fsdp {

/// The traps of this process, and the signal handler before them.
struct Trapping {
  std::mutex mutex;
  std::vector<WriteTrap*> traps;
  struct sigaction before = {};

  static Trapping& instance() {
    static Trapping& trapping = *new Trapping;  // a signal may come after static objects have gone
    return trapping;
  }

  void install() {
    struct sigaction action = {};
    action.sa_sigaction = &handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGSEGV, &action, &before);
  }

  /// Not where somebody has put another handler over this one.
  void uninstall() const {
    struct sigaction now = {};
    ::sigaction(SIGSEGV, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &handle) {
      ::sigaction(SIGSEGV, &before, nullptr);
    }
  }

  // Nothing here allocates or locks. The instruction is run again, and fails again.
  // A signal that somebody sent has no such instruction, and is sent on.
  static void handle(int, siginfo_t* info, void*) {
    const bool is_fault = info->si_code > 0;
    if (is_fault) say_where(reinterpret_cast<uintptr_t>(info->si_addr));
    ::sigaction(SIGSEGV, &instance().before, nullptr);
    if (!is_fault) ::raise(SIGSEGV);
  }

  static void say_where(uintptr_t address) {
    for (const WriteTrap* trap : instance().traps) {
      for (const WriteTrap::Range& range : trap->ranges_) {
        if (address < range.begin || address >= range.end) continue;
        [[maybe_unused]] const auto written =
            ::write(STDERR_FILENO, range.text.data(), range.text.size());
      }
    }
  }
};

WriteTrap::WriteTrap(int64_t rank) : rank_(rank) {
  Trapping& trapping = Trapping::instance();
  const std::lock_guard lock(trapping.mutex);
  if (trapping.traps.empty()) trapping.install();
  trapping.traps.push_back(this);
}

WriteTrap::~WriteTrap() {
  Trapping& trapping = Trapping::instance();
  const std::lock_guard lock(trapping.mutex);
  std::erase(trapping.traps, this);
  if (trapping.traps.empty()) trapping.uninstall();
}

void WriteTrap::add(const void* begin, size_t bytes, const std::string& what) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  const std::lock_guard lock(Trapping::instance().mutex);
  ranges_.push_front(
      {first, first + bytes,
       fmt::format("levin error: strategy.fsdp.write: something writes to {} within a forward or "
                   "backward pass or after fit, when all ranks read that memory; write to "
                   "parameters between steps, or within levin::WholeScope [rank {}]\n",
                   what, rank_)});
}

}  // namespace levin::fsdp
