#pragma once
// Environment: what the launcher that started this process told it, whichever launcher it was.
// Read once at the start of a run; the rendezvous and the process groups are built from it.
//
//   const comm::Environment environment = comm::read_environment();
//   if (environment.launcher == "alone") ...  // nobody started peers

#include <cstdint>
#include <string>

#include "levin/base/export.h"
#include "levin/base/rank.h"

namespace levin::comm {

class Variables;

struct Environment {
  RankInfo rank;
  int64_t node_rank = 0;
  std::string master_address = {};  ///< where rank 0 (or the launcher) serves the store
  int64_t master_port = 0;
  /// Where the launcher keeps the store of ranks that are on its machine: a file that no other user can
  /// open. Empty: the store is at the master's address.
  std::string store_file = {};
  int64_t restart_count = 0;  ///< raised at each new start: the prefix of the rendezvous keys
  std::string run_id = {};
  std::string token = {};          ///< the job's secret, LEVIN_JOB_TOKEN: a part of all its keys
  std::string launcher = "alone";  ///< torchrun, kubeflow, mpirun, slurm or alone
  /// The launcher serves the store: rank 0 connects to it as all others do.
  bool launcher_hosts_store = false;
  /// How many processes this one is asked to start on its node, itself among them. Only Kubeflow
  /// asks, whose pods hold one process: rank and world_size then count pods.
  int64_t processes_per_node = 1;
};

/// Asks torchrun (and `levin run`), Kubeflow, mpirun and Slurm in that order; the first that has
/// left its variables answers. Throws Error "comm.environment.number" for what is no number,
/// "comm.environment.missing" for variables set by half, "comm.environment.rank" for a rank outside
/// its world, "comm.environment.master" where nobody says which host is the master, and
/// "comm.environment.hosts" for a list of hosts that cannot be read.
LEVIN_API Environment read_environment(const Variables& variables);
LEVIN_API Environment read_environment();

}  // namespace levin::comm
