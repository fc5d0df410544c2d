#include "levin/launch/launch.h"

#include <cstdlib>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/launch/members.h"
#include "levin/launch/peers.h"
#include "levin/launch/rendezvous.h"

namespace levin::launch {
namespace {

// A job of Slurm that is to end soon: its ranks have saved, the queue starts it again.
void requeue(Guard& guard, Signals& signals) {
  const char* job = std::getenv("SLURM_JOB_ID");
  log::info("asking Slurm to queue job {} again", job);
  Member scontrol;
  scontrol.process.command = {"scontrol", "requeue", job};
  scontrol.error.console = 2;
  RankGroup group({scontrol}, {.shutdown_timeout_s = 5}, guard);
  const Outcome outcome = group.run(signals, {});
  if (outcome.failure) log::error("scontrol requeue {}: {}", job, describe(*outcome.failure));
}

bool under_slurm() { return std::getenv("SLURM_JOB_ID") != nullptr; }

}  // namespace

int detail::supervise(const LaunchOptions& options, const std::string& program) {
  check_options(options);
  Guard guard;
  Signals signals(options.signals_from_input);
  const auto rendezvous =
      options.nnodes.most == 1 ? rendezvous_of_one_node(options) : rendezvous_of_nodes(options);
  for (;;) {
    const auto step = rendezvous->next(signals);
    if (!step.plan) return step.exit_code;
    RankGroup group(members_of(*step.plan, options, program),
                    {.shutdown_timeout_s = options.shutdown_timeout_s,
                     .failure_timeout_s = options.failure_timeout_s,
                     .saves_on_usr1 = under_slurm(),
                     .host = files::detail::host_name()},
                    guard);
    const Outcome outcome = group.run(signals, rendezvous->events());
    const bool asked = outcome.kind == Outcome::Kind::kSignalled && outcome.signal == SIGUSR1;
    if (asked && step.plan->node_rank == 0) requeue(guard, signals);
    rendezvous->settle(outcome);
  }
}

int launch(const LaunchOptions& options) { return detail::supervise(options, ""); }

}  // namespace levin::launch
