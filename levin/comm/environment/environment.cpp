#include "levin/comm/environment/environment.h"

#include <array>

#include "levin/base/check.h"
#include "levin/comm/environment/launchers_impl.h"
#include "levin/comm/environment/token.h"
#include "levin/comm/environment/variables.h"

namespace levin::comm {
namespace {

// torchrun first: its ranks inherit the variables of the pod, the allocation or the mpirun that
// they run in. mpirun before Slurm: Hydra starts its proxies by srun.
constexpr std::array kLaunchers = {detail::read_torchrun, detail::read_kubeflow,
                                   detail::read_mpirun, detail::read_slurm};

void check_ranks(const Environment& environment) {
  const RankInfo& rank = environment.rank;
  LEVIN_CHECK(rank.rank < rank.world_size, "comm.environment.rank",
              "{} says rank {} of {} processes, wanted a rank from 0 to {}", environment.launcher,
              rank.rank, rank.world_size, rank.world_size - 1);
  LEVIN_CHECK(rank.local_rank < rank.local_world_size, "comm.environment.rank",
              "{} says local rank {} of {} processes on this host, wanted one from 0 to {}",
              environment.launcher, rank.local_rank, rank.local_world_size,
              rank.local_world_size - 1);
  LEVIN_CHECK(rank.local_world_size <= rank.world_size, "comm.environment.rank",
              "{} says {} processes on this host of {} in all, wanted at most {}",
              environment.launcher, rank.local_world_size, rank.world_size, rank.world_size);
}

}  // namespace

Environment read_environment(const Variables& variables) {
  for (const auto& read : kLaunchers) {
    if (auto environment = read(variables)) {
      check_ranks(*environment);
      environment->token = variables.text_or(kTokenVariable, "");
      return *environment;
    }
  }
  return {};
}

Environment read_environment() { return read_environment(Variables::of_this_process()); }

}  // namespace levin::comm
