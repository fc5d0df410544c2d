#pragma once
// Plan: who takes part in one start of the group, and where the ranks find each other.
// Made by the rendezvous, read by the launcher of each node, which makes its ranks' variables of
// it.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin::launch {

struct Plan {
  int64_t attempt = 0;  ///< raised at each start: the ranks' prefix of rendezvous keys
  int64_t max_restarts = 0;
  int64_t node_rank = 0;
  int64_t num_nodes = 1;
  int64_t first_rank = 0;  ///< first of this node's ranks
  int64_t world_size = 1;
  int64_t local_world_size = 1;
  std::string master_address = "127.0.0.1";
  int64_t master_port = 0;
  std::string run_id = {};
  std::string store_file = {};  ///< store file of ranks that are all on this machine
  std::string token = {};
};

/// torchrun's variables for one rank, and the token.
LEVIN_API std::vector<std::pair<std::string, std::string>> rank_variables(const Plan& plan,
                                                                          int64_t local_rank);

}  // namespace levin::launch
