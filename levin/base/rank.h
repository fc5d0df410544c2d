#pragma once
// RankInfo: the rank of this process and the world size. comm/environment reads it once at the
// start of a run, and it is passed on to every part of levin.
//
//   const levin::RankInfo info = levin::rank_from_environment();
//   if (info.is_global_zero()) std::puts("rank 0");

#include <cstdint>

#include "levin/base/export.h"

namespace levin {

/// Rank and world size of a process, in the run and on its machine (node).
struct RankInfo {
  int64_t rank = 0;              ///< global rank: number among all processes of the run, from 0
  int64_t world_size = 1;        ///< number of processes of the run
  int64_t local_rank = 0;        ///< number among the processes on this machine, from 0
  int64_t local_world_size = 1;  ///< number of processes on this machine

  /// Returns whether this is rank 0 of the run, like Lightning's is_global_zero.
  bool is_global_zero() const { return rank == 0; }
};

/// Reads the rank from torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE), else
/// from those of mpirun or Slurm. A variable that is missing or is not a number leaves the default.
/// Messages use it, because it works before anything is set up.
LEVIN_API RankInfo rank_from_environment();

}  // namespace levin
