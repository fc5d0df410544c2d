// One launcher on each host of a list, by ssh.

#include <unistd.h>

#include <array>
#include <filesystem>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/comm/environment/port.h"
#include "levin/comm/environment/token.h"
#include "levin/comm/environment/variables.h"
#include "levin/launch/command_line.h"
#include "levin/launch/hostfile.h"
#include "levin/launch/node/rank_group.h"
#include "levin/launch/peers.h"

namespace levin::launch {
namespace {

constexpr int kSshFailed = 255;
constexpr double kRemoteEndSeconds = 5;  // beyond what the launchers there take themselves
// The token is not among them: a command line is for everybody to read.
constexpr std::array<std::string_view, 4> kPassedVariables = {"LEVIN_", "NCCL_", "OMP_",
                                                              "LD_LIBRARY_PATH="};

// ssh would take it for an option, and options of ssh run programs.
void check_host(const std::string& name) {
  LEVIN_CHECK(!name.starts_with('-'), "launch.hostfile",
              "got host '{}', wanted a name that does not begin with -", printable(name));
}

std::vector<std::string> passed_variables() {
  std::vector<std::string> passed;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    for (const std::string_view start : kPassedVariables) {
      const std::string_view line = *entry;
      const bool secret = line.substr(0, line.find('=')) == comm::kTokenVariable;
      if (line.starts_with(start) && !secret) passed.emplace_back(line);
    }
  }
  return passed;
}

bool is_here(const std::string& name) { return name == "localhost" || name == posix::host_name(); }

/// The command line for the shell on that host.
std::string remote_line(const LaunchOptions& options, const std::vector<Host>& hosts, size_t node,
                        const std::string& run_id) {
  const NodeRange& range = options.nnodes;
  const int64_t slots = hosts[node].slots;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  LEVIN_CHECK(!error, "launch.hostfile", "cannot find the path of this program ({}); mount /proc",
              error.message());
  const std::filesystem::path here = std::filesystem::current_path(error);
  LEVIN_CHECK(!error, "launch.hostfile",
              "the working directory no longer exists ({}); start from another one",
              error.message());
  const int64_t port = options.master_port.value_or(comm::derived_port(run_id));
  std::vector<std::string> words = {"env"};
  for (const std::string& variable : passed_variables()) words.push_back(variable);
  const std::vector<std::string> own = {
      program.string(),
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
      "--token-from-input",
      "--signals-from-input"};
  words.insert(words.end(), own.begin(), own.end());
  for (const std::string& flag : flags_of(options)) words.push_back(flag);
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return fmt::format("cd {} && exec {}", shell_word(here.string()), shell_line(words));
}

Member launcher_on(const Host& host, size_t node, const std::string& line,
                   const std::string& token) {
  Member member;
  member.rank = static_cast<int64_t>(node);
  member.signals_by_input = true;
  member.first_line = token + "\n";
  if (is_here(host.name)) {
    member.process.command = {"/bin/sh", "-c", line};
  } else {
    member.process.command = {"ssh", "-o", "BatchMode=yes", "--", host.name, line};
  }
  member.output = RankStream::Options{.console = STDOUT_FILENO};
  member.error = {.console = STDERR_FILENO, .num_last_lines = 1};
  return member;
}

int exit_code_of(const Outcome& outcome, const std::vector<Host>& hosts, bool elastic) {
  if (outcome.kind == Outcome::Kind::kSignalled) return 128 + outcome.signal;
  if (!outcome.failure) return 0;
  const RankFailure& failure = *outcome.failure;
  const bool told = failure.rank >= 0 && failure.signal == 0 && failure.exit_code != kSshFailed;
  if (!told) {
    const std::string host = failure.rank < 0 ? "" : hosts[static_cast<size_t>(failure.rank)].name;
    log::error("ssh to {}: {}", host, describe(failure));
  }
  const bool master_lives = elastic && failure.rank > 0;
  return master_lives ? 0 : levin::launch::exit_code_of(failure);
}

}  // namespace

int launch_on_hosts(const std::vector<Host>& hosts, const LaunchOptions& options) {
  for (const Host& host : hosts) check_host(host.name);
  const std::string run_id = options.rdzv_id.empty()
                                 ? fmt::format("{}-{}", posix::host_name(), ::getpid())
                                 : options.rdzv_id;
  const std::string given = detail::token_for(options);
  const std::string secret = given.empty() ? comm::new_token() : given;
  std::vector<Member> members;
  for (size_t node = 0; node < hosts.size(); ++node) {
    members.push_back(
        launcher_on(hosts[node], node, remote_line(options, hosts, node, run_id), secret));
  }
  Guard guard;
  Signals signals;
  Console console;
  const double timeout_s = options.shutdown_timeout_s + kRemoteEndSeconds;
  // The launchers of an elastic job go on without a host that is lost.
  RankGroup group(std::move(members),
                  {.shutdown_timeout_s = timeout_s,
                   .failure_timeout_s = timeout_s,
                   .failure_ends_all = !options.nnodes.elastic()},
                  guard, console);
  const int code = exit_code_of(group.run(signals, {}), hosts, options.nnodes.elastic());
  console.flush([&] { return signals.take().has_value(); });
  return code;
}

}  // namespace levin::launch
