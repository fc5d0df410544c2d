#include "levin/launch/launch.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/comm/environment/token.h"
#include "levin/launch/node/members.h"
#include "levin/launch/peers.h"
#include "levin/launch/rendezvous/rendezvous.h"

namespace levin::launch {
namespace {

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
              "--token-from-input: the first line of stdin is no token; it is for `levin run "
              "--hostfile` alone");
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
