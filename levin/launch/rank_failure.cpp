#include "levin/launch/rank_failure.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "levin/comm/environment/kubeflow.h"

namespace levin::launch {
namespace {

struct SignalName {
  int number;
  std::string_view name;
};

constexpr std::array kSignalNames = {
    SignalName{SIGKILL, "SIGKILL, perhaps because memory ran out: see dmesg"},
    SignalName{SIGTERM, "SIGTERM"},
    SignalName{SIGSEGV, "SIGSEGV"},
    SignalName{SIGABRT, "SIGABRT"},
    SignalName{SIGBUS, "SIGBUS, perhaps because shared memory ran out"},
    SignalName{SIGFPE, "SIGFPE"},
    SignalName{SIGILL, "SIGILL"},
    SignalName{SIGINT, "SIGINT"},
    SignalName{SIGHUP, "SIGHUP"},
    SignalName{SIGPIPE, "SIGPIPE"},
    SignalName{SIGQUIT, "SIGQUIT"},
    SignalName{SIGTRAP, "SIGTRAP"},
    SignalName{SIGXCPU, "SIGXCPU"},
    SignalName{SIGUSR1, "SIGUSR1"},
};

}  // namespace

int exit_code_of(const RankFailure& failure) {
  return static_cast<int>(failure.signal != 0 ? 128 + failure.signal : failure.exit_code);
}

int exit_code_for_lost_node() { return comm::in_kubernetes() ? comm::kRetryExitCode : 1; }

std::string ending_of(const RankFailure& failure) {
  if (failure.signal == 0 && !failure.text.empty()) return failure.text;
  if (failure.signal == 0) return fmt::format("exit code {}", failure.exit_code);
  const auto found = std::ranges::find(kSignalNames, failure.signal, &SignalName::number);
  const bool known = found != kSignalNames.end();
  return fmt::format("signal {}{}", failure.signal, known ? fmt::format(" ({})", found->name) : "");
}

std::string describe(const RankFailure& failure) {
  if (failure.rank < 0) return failure.text;
  std::string text = fmt::format("rank {} on {} (pid {}) ended with {}", failure.rank, failure.host,
                                 failure.pid, ending_of(failure));
  if (failure.is_explained) return text + ", by the error above";
  if (failure.last_lines.empty()) return text + "; it wrote nothing to stderr";
  text += "; the last lines of its stderr:";
  for (const std::string& line : failure.last_lines) text += "\n  | " + line;
  return text;
}

}  // namespace levin::launch
