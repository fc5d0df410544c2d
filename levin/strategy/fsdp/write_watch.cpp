#include "levin/strategy/fsdp/write_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <mutex>
#include <utility>
#include <vector>

#include "levin/base/error.h"

namespace levin::fsdp {
namespace {

std::string text_of(std::string_view writer, const shard::ShardedParameter& parameter,
                    std::string_view when) {
  return fmt::format(
      "{} writes to {} of unit {} {}, when all ranks read that memory; write to parameters between "
      "steps, or within levin::WholeScope",
      writer, parameter.name(), parameter.unit_name(), when);
}

}  // namespace

/// The watches of this process, and the signal handler before them.
struct Signals {
  std::mutex mutex;
  std::vector<WriteWatch*> watches;
  struct sigaction before = {};

  static Signals& instance() {
    static Signals& signals = *new Signals;  // a signal may come after static objects have gone
    return signals;
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
    for (const WriteWatch* watch : instance().watches) {
      for (const WriteWatch::Range& range : watch->ranges_) {
        if (address < range.begin || address >= range.end) continue;
        [[maybe_unused]] const auto written =
            ::write(STDERR_FILENO, range.text.data(), range.text.size());
      }
    }
  }
};

WriteWatch::WriteWatch(int64_t rank) : rank_(rank) {
  Signals& signals = Signals::instance();
  const std::lock_guard lock(signals.mutex);
  if (signals.watches.empty()) signals.install();
  signals.watches.push_back(this);
}

WriteWatch::~WriteWatch() {
  Signals& signals = Signals::instance();
  const std::lock_guard lock(signals.mutex);
  std::erase(signals.watches, this);
  if (signals.watches.empty()) signals.uninstall();
}

void WriteWatch::refuse(const shard::ShardedParameter& parameter, std::string_view op_name) {
  throw Error("strategy.fsdp.write",
              text_of(op_name, parameter, "within a forward or backward pass"));
}

void WriteWatch::add(const shard::ShardedParameter& parameter, const at::Tensor& values) {
  const auto first = reinterpret_cast<uintptr_t>(values.const_data_ptr());
  std::string text = fmt::format(
      "levin error: strategy.fsdp.write: {} [rank {}]\n",
      text_of("something", parameter, "within a forward or backward pass or after fit"), rank_);
  const std::lock_guard lock(Signals::instance().mutex);
  ranges_.push_front({first, first + values.nbytes(), std::move(text)});
}

}  // namespace levin::fsdp
