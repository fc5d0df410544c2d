#include "levin/launch/hostfile.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/text.h"
#include "levin/comm/environment/port.h"
#include "levin/comm/environment/variables.h"
#include "levin/launch/command_line.h"
#include "levin/launch/rank_group.h"

namespace levin::launch {
namespace {

constexpr int kSshFailed = 255;
constexpr double kRemoteEndSeconds = 5;  // beyond what the launchers there take themselves
constexpr std::array<std::string_view, 4> kPassedVariables = {"LEVIN_", "NCCL_", "OMP_",
                                                              "LD_LIBRARY_PATH="};

Host host_in(const std::string& line, const std::string& place) {
  std::istringstream words(line);
  Host host;
  words >> host.name;
  for (std::string word; words >> word;) {
    LEVIN_CHECK(word.starts_with("slots="), "launch.hostfile", "{}: got '{}', wanted slots=NUMBER",
                place, word);
    try {
      from_text(word.substr(std::string_view("slots=").size()), host.slots);
    } catch (const Error&) {
      host.slots = 0;
    }
    LEVIN_CHECK(host.slots >= 1, "launch.hostfile", "{}: got '{}', wanted slots=NUMBER", place,
                word);
  }
  return host;
}

std::vector<std::string> passed_variables() {
  std::vector<std::string> passed;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    for (const std::string_view start : kPassedVariables) {
      if (std::string_view(*entry).starts_with(start)) passed.emplace_back(*entry);
    }
  }
  return passed;
}

bool is_here(const std::string& name) {
  return name == "localhost" || name == files::detail::host_name();
}

/// What a shell on that host is to run.
std::string remote_line(const LaunchOptions& options, const std::vector<Host>& hosts, size_t node,
                        const std::string& run_id) {
  const NodeRange& range = options.nnodes;
  const int64_t slots = hosts[node].slots;
  const int64_t port = options.master_port.value_or(comm::derived_port(run_id));
  std::vector<std::string> words = {"env"};
  for (const std::string& variable : passed_variables()) words.push_back(variable);
  const std::vector<std::string> own = {
      std::filesystem::read_symlink("/proc/self/exe").string(),
      "run",
      "--nnodes",
      fmt::format("{}:{}", range.elastic() ? range.least : hosts.size(), hosts.size()),
      "--node-rank",
      std::to_string(node),
      "--nproc-per-node",
      std::to_string(slots > 0 ? slots : options.nproc_per_node),
      "--master-addr",
      options.master_addr.empty() ? hosts.front().name : options.master_addr,
      "--master-port",
      std::to_string(port),
      "--rdzv-id",
      run_id,
      "--signals-from-input"};
  words.insert(words.end(), own.begin(), own.end());
  for (const std::string& flag : flags_of(options)) words.push_back(flag);
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return fmt::format("cd {} && exec {}", shell_word(std::filesystem::current_path().string()),
                     shell_line(words));
}

Member launcher_on(const Host& host, size_t node, const std::string& line) {
  Member member;
  member.rank = static_cast<int64_t>(node);
  member.signals_by_input = true;
  if (is_here(host.name)) {
    member.process.command = {"/bin/sh", "-c", line};
  } else {
    member.process.command = {"ssh", "-o", "BatchMode=yes", host.name, line};
  }
  member.output = RankStream::Options{.console = STDOUT_FILENO};
  member.error = {.console = STDERR_FILENO, .num_last_lines = 1};
  return member;
}

}  // namespace

std::vector<Host> read_hostfile(const std::filesystem::path& file) {
  std::ifstream in(file);
  LEVIN_CHECK(in, "launch.hostfile", "cannot read the hostfile {}; check the path", file.string());
  std::vector<Host> hosts;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    hosts.push_back(host_in(line, fmt::format("{} line {}", file.string(), number)));
  }
  LEVIN_CHECK(!hosts.empty(), "launch.hostfile", "{} names no host; wanted lines of HOST slots=N",
              file.string());
  return hosts;
}

int launch_on_hosts(const std::vector<Host>& hosts, const LaunchOptions& options) {
  const std::string run_id = options.rdzv_id.empty()
                                 ? fmt::format("{}-{}", files::detail::host_name(), ::getpid())
                                 : options.rdzv_id;
  std::vector<Member> members;
  for (size_t node = 0; node < hosts.size(); ++node) {
    members.push_back(launcher_on(hosts[node], node, remote_line(options, hosts, node, run_id)));
  }
  Guard guard;
  Signals signals;
  const double timeout_s = options.shutdown_timeout_s + kRemoteEndSeconds;
  // The launchers of an elastic job go on without a host that is lost.
  RankGroup group(std::move(members),
                  {.shutdown_timeout_s = timeout_s,
                   .failure_timeout_s = timeout_s,
                   .failure_ends_all = !options.nnodes.elastic()},
                  guard);
  const Outcome outcome = group.run(signals, {});
  if (outcome.kind == Outcome::Kind::kSignalled) return 128 + outcome.signal;
  if (!outcome.failure) return 0;
  const Failure& failure = *outcome.failure;
  const bool told = failure.rank >= 0 && failure.signal == 0 && failure.exit_code != kSshFailed;
  if (!told) {
    const std::string host = failure.rank < 0 ? "" : hosts[static_cast<size_t>(failure.rank)].name;
    log::error("ssh to {}: {}", host, describe(failure));
  }
  const bool master_lives = options.nnodes.elastic() && failure.rank > 0;
  return master_lives ? 0 : exit_code_of(failure);
}

}  // namespace levin::launch
