#include "levin/launch/launch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/comm/environment/token.h"
#include "levin/launch/node/binding.h"
#include "levin/launch/node/rank_group.h"
#include "levin/launch/peers.h"
#include "levin/launch/plan.h"
#include "levin/launch/rendezvous/rendezvous.h"

namespace levin::launch {
namespace {

constexpr size_t kNumLastLines = 20;

bool shown(const LaunchOptions& options, int64_t local_rank) {
  const auto& filter = options.local_ranks_filter;
  return filter.empty() || std::ranges::find(filter, local_rank) != filter.end();
}

int64_t num_shown(const LaunchOptions& options, int64_t num_ranks) {
  int64_t count = 0;
  for (int64_t rank = 0; rank < num_ranks; ++rank) count += shown(options, rank) ? 1 : 0;
  return count;
}

bool is_file(int number) {
  struct stat status = {};
  return ::fstat(number, &status) == 0 && S_ISREG(status.st_mode);
}

struct Wish {
  bool file = false;
  bool console = false;
};

// --log-dir alone asks for both.
Wish wish_for(bool redirected, bool teed, const LaunchOptions& options, bool is_shown) {
  const bool neither = options.redirects == "0" && options.tee == "0";
  const bool file = !options.log_dir.empty() && (redirected || teed || neither);
  return {file, is_shown && !(redirected && !teed)};
}

RankStream::Options stream_of(const Wish& wish, int console, const std::string& prefix,
                              const std::filesystem::path& file) {
  RankStream::Options stream;
  if (wish.console) stream.console = console;
  if (wish.file) stream.file = file;
  stream.prefix = prefix;
  return stream;
}

/// The ranks of this node, each with its command, variables, CPUs, log files and prefix. program is
/// the file to run where it is not the command's first word. Throws Error "launch.binding" when the
/// CPUs do not suffice.
std::vector<Member> members_of(const Plan& plan, const LaunchOptions& options,
                               const std::string& program) {
  const bool many = plan.num_nodes > 1 || num_shown(options, plan.local_world_size) > 1;
  const auto attempt = std::filesystem::path(options.log_dir) / plan.run_id /
                       fmt::format("attempt_{}", plan.attempt);
  std::vector<Member> members;
  for (int64_t local = 0; local < plan.local_world_size; ++local) {
    Member member;
    member.rank = plan.first_rank + local;
    member.process = {.command = options.command,
                      .program = program,
                      .variables = rank_variables(plan, local),
                      .cpus = cpus_for(options.numa_binding, local, plan.local_world_size)};
    const Streams redirected = parse_streams(options.redirects, local);
    const Streams teed = parse_streams(options.tee, local);
    const bool is_shown = shown(options, local);
    const Wish out = wish_for(redirected.out, teed.out, options, is_shown);
    const Wish err = wish_for(redirected.err, teed.err, options, is_shown);
    const auto folder = attempt / std::to_string(member.rank);
    const bool plain = !many || (options.first_rank_plain && member.rank == 0);
    const std::string prefix = plain ? "" : fmt::format("[rank {}] ", member.rank);
    const bool as_it_comes = plain && out.console && !out.file;
    // A file is never held up: the rank writes there itself.
    if (!as_it_comes || !is_file(STDOUT_FILENO)) {
      member.output = stream_of(out, STDOUT_FILENO, prefix, folder / "stdout.log");
      member.output->as_it_comes = as_it_comes;
    }
    member.error = stream_of(err, STDERR_FILENO, prefix, folder / "stderr.log");
    member.error.num_last_lines = kNumLastLines;
    member.error.as_it_comes = as_it_comes;
    members.push_back(std::move(member));
  }
  return members;
}

constexpr size_t kLongestToken = 256;

// A job of Slurm that is to end soon: its ranks have saved, the queue starts it again.
void requeue(Guard& guard, Signals& signals, Console& console) {
  const char* job = std::getenv("SLURM_JOB_ID");
  log::info("asking Slurm to queue job {} again", job);
  Member scontrol;
  scontrol.process.command = {"scontrol", "requeue", job};
  scontrol.error.console = 2;
  RankGroup group({scontrol}, {.shutdown_timeout_s = 5}, guard, console);
  const Outcome outcome = group.run(signals, {});
  if (outcome.failure) log::error("scontrol requeue {}: {}", job, describe(*outcome.failure));
}

// Whoever starts launchers over a network writes it before anything else.
std::string token_in_input() {
  std::string token;
  for (char letter = 0; token.size() <= kLongestToken;) {
    const ssize_t count = ::read(STDIN_FILENO, &letter, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || letter == '\n') break;
    token += letter;
  }
  LEVIN_CHECK(!token.empty() && token.size() <= kLongestToken, "launch.options",
              "--token-from-input: the first line of stdin is not a token; only `levin run "
              "--hostfile` uses this option");
  return token;
}

bool under_slurm() { return std::getenv("SLURM_JOB_ID") != nullptr; }

}  // namespace

std::string detail::token_for(const LaunchOptions& options) {
  if (options.token_from_input) return token_in_input();
  const char* variable = std::getenv(comm::kTokenVariable);
  return options.token.empty() && variable != nullptr ? variable : options.token;
}

int detail::supervise(const LaunchOptions& given, const std::string& program) {
  check_options(given);
  LaunchOptions options = given;
  options.token = detail::token_for(given);
  Guard guard;
  Signals signals(options.signals_from_input);
  Console console;
  const auto rendezvous =
      options.nnodes.most == 1 ? rendezvous_of_one_node(options) : rendezvous_of_nodes(options);
  for (;;) {
    const auto step = rendezvous->next(signals);
    if (!step.plan) {
      console.flush([&] { return signals.take().has_value(); });
      return step.exit_code;
    }
    RankGroup group(members_of(*step.plan, options, program),
                    {.shutdown_timeout_s = options.shutdown_timeout_s,
                     .failure_timeout_s = options.failure_timeout_s,
                     .saves_on_usr1 = under_slurm(),
                     .host = posix::host_name()},
                    guard, console);
    const Outcome outcome = group.run(signals, rendezvous->events());
    const bool asked = outcome.kind == Outcome::Kind::kSignalled && outcome.signal == SIGUSR1;
    if (asked && step.plan->node_rank == 0) requeue(guard, signals, console);
    rendezvous->settle(outcome);
  }
}

int launch(const LaunchOptions& options) { return detail::supervise(options, ""); }

}  // namespace levin::launch
