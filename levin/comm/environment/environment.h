#pragma once
// Environment: rank, world size and rendezvous address of this process, as its launcher (torchrun,
// levin run, Kubeflow, mpirun or Slurm) set them in environment variables. It is read once at the
// start of a run; the rendezvous and the process groups are built from it.
//
//   const comm::Environment environment = comm::read_environment();
//   if (environment.launcher == "alone") ...  // nobody started peers

#include <cstdint>
#include <string>

#include "levin/base/export.h"
#include "levin/base/rank.h"

namespace levin::comm {

class Variables;

/// Place of this process in a run, and the address where its ranks meet.
struct Environment {
  RankInfo rank;                    ///< rank and world size, in the run and on this machine
  int64_t node_rank = 0;            ///< number of this machine among those of the run, from 0
  std::string master_address = {};  ///< host where rank 0 (or the launcher) serves the store
  int64_t master_port = 0;          ///< TCP port of the store on that host
  /// File store of a launcher whose ranks are all on its machine; no other user can open it. If it
  /// is empty, the store is at the master address.
  std::string store_file = {};
  int64_t restart_count = 0;       ///< number of restarts so far; a part of the rendezvous keys
  std::string run_id = {};         ///< the launcher's id of the job; a part of the rendezvous keys
  std::string token = {};          ///< secret of the job (LEVIN_JOB_TOKEN), a part of all its keys
  std::string launcher = "alone";  ///< torchrun, kubeflow, mpirun, slurm or alone
  /// True if the launcher serves the store. Rank 0 then connects to it like all other ranks.
  bool launcher_hosts_store = false;
  /// Number of processes that should run on this node, this one included. Only Kubeflow asks for
  /// more than 1: its pods start one process each, and rank and world_size then count pods.
  int64_t processes_per_node = 1;
};

/// Reads the environment from the variables of torchrun (and `levin run`), Kubeflow, mpirun or
/// Slurm. They are tried in this order, and the first launcher whose variables are set is used.
/// Throws Error "comm.environment.number" for a variable that is not a number,
/// "comm.environment.missing" if only some of a launcher's variables are set,
/// "comm.environment.rank" for a rank outside its world size, "comm.environment.master" if no
/// variable names the master host, and "comm.environment.hosts" for a host list that cannot be
/// read.
LEVIN_API Environment read_environment(const Variables& variables);
/// Reads the environment of this process. Throws as above.
LEVIN_API Environment read_environment();

}  // namespace levin::comm
