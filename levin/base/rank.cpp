#include "levin/base/rank.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace levin {
namespace {

using Names = std::initializer_list<const char*>;

// torchrun's name first: its ranks inherit the variables of what it runs in.
void read(Names variables, int64_t& value) {
  for (const char* variable : variables) {
    const char* text = std::getenv(variable);
    if (text == nullptr) continue;
    std::from_chars(text, text + std::strlen(text), value);
    return;
  }
}

}  // namespace

RankInfo rank_from_environment() {
  RankInfo info;
  read({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, info.rank);
  read({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, info.world_size);
  read({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"},
       info.local_rank);
  read({"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"},
       info.local_world_size);
  return info;
}

}  // namespace levin
