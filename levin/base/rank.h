#pragma once
// Which process of a run this is.
// comm/environment reads it once at the start of a run, and it is passed on to every room.

#include <cstdint>

#include "levin/base/export.h"

namespace levin {

struct RankInfo {
  int64_t rank = 0;        ///< of all processes of the run
  int64_t world_size = 1;  ///< number of processes of the run
  int64_t local_rank = 0;  ///< of the processes on this machine
  int64_t local_world_size = 1;

  bool is_global_zero() const { return rank == 0; }
};

/// For messages, which may come before anything is set up: from RANK and WORLD_SIZE (torchrun's) or
/// what mpirun and Slurm have set; a variable that is missing or no number leaves its default.
LEVIN_API RankInfo rank_from_environment();

}  // namespace levin
