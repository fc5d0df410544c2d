#include "levin/launch/plan.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>

#include "levin/comm/environment/token.h"

namespace levin::launch {
namespace {

// LibTorch would start a thread for each core in every rank.
int64_t threads_of_a_rank(int64_t local_world_size) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  return std::max<int64_t>(1, CPU_COUNT(&set) / local_world_size);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> rank_variables(const Plan& plan,
                                                                int64_t local_rank) {
  const std::string rank = std::to_string(plan.first_rank + local_rank);
  const std::string world = std::to_string(plan.world_size);
  std::vector<std::pair<std::string, std::string>> variables = {
      {"RANK", rank},
      {"WORLD_SIZE", world},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(plan.local_world_size)},
      {"GROUP_RANK", std::to_string(plan.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(plan.num_nodes)},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", world},
      {"MASTER_ADDR", plan.master_address},
      {"MASTER_PORT", std::to_string(plan.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(plan.attempt)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(plan.max_restarts)},
      {"TORCHELASTIC_RUN_ID", plan.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
  };
  // It is set even if empty: this launcher may be a rank of another one.
  variables.emplace_back(comm::kStoreVariable, plan.store_file);
  if (!plan.token.empty()) variables.emplace_back(comm::kTokenVariable, plan.token);
  if (std::getenv("OMP_NUM_THREADS") == nullptr && plan.local_world_size > 1) {
    variables.emplace_back("OMP_NUM_THREADS",
                           std::to_string(threads_of_a_rank(plan.local_world_size)));
  }
  return variables;
}

}  // namespace levin::launch
