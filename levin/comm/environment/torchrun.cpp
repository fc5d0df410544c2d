#include "levin/comm/environment/launchers_impl.h"
#include "levin/comm/environment/token.h"
#include "levin/comm/environment/variables.h"

namespace levin::comm::detail {
namespace {

constexpr int64_t kTorchrunPort = 29500;

// RANK and WORLD_SIZE alone are set in Kubeflow's pods too, where they may count pods.
bool is_torchrun(const Variables& variables) {
  if (variables.has("LOCAL_RANK") || variables.has("TORCHELASTIC_RUN_ID")) return true;
  const bool in_pod = variables.has("PET_NNODES") || variables.has("PET_NODE_RANK") ||
                      variables.has("KUBERNETES_SERVICE_HOST");
  return !in_pod && (variables.has("RANK") || variables.has("WORLD_SIZE"));
}

// Whoever sets the four by hand may leave out the local ones: all processes on this host then.
RankInfo torchrun_ranks(const Variables& variables) {
  const char* seen = variables.has("RANK") ? "RANK" : "LOCAL_RANK";
  RankInfo info;
  info.world_size = variables.number("WORLD_SIZE", {.least = 1}, seen);
  info.rank = variables.number("RANK", {}, "WORLD_SIZE");
  const bool local = variables.has("LOCAL_RANK") || variables.has("LOCAL_WORLD_SIZE");
  info.local_rank = local ? variables.number("LOCAL_RANK", {}, "LOCAL_WORLD_SIZE") : info.rank;
  info.local_world_size = variables.number_or("LOCAL_WORLD_SIZE", {.least = 1}, info.world_size);
  return info;
}

}  // namespace

std::optional<Environment> read_torchrun(const Variables& variables) {
  if (!is_torchrun(variables)) return std::nullopt;
  Environment environment;
  environment.launcher = "torchrun";
  environment.rank = torchrun_ranks(variables);
  environment.node_rank = variables.number_or(
      "GROUP_RANK", {}, environment.rank.rank / environment.rank.local_world_size);
  environment.master_port = variables.number_or("MASTER_PORT", kAnyPort, kTorchrunPort);
  const bool one_host = environment.rank.world_size == environment.rank.local_world_size;
  environment.master_address = one_host
                                   ? variables.text_or("MASTER_ADDR", "127.0.0.1")
                                   : variables.text("MASTER_ADDR", "WORLD_SIZE of several hosts");
  if (one_host) environment.store_file = variables.text_or(kStoreVariable, "");
  environment.restart_count = variables.number_or("TORCHELASTIC_RESTART_COUNT", {}, 0);
  environment.run_id = variables.text_or("TORCHELASTIC_RUN_ID", "");
  environment.launcher_hosts_store =
      variables.text_or("TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  return environment;
}

}  // namespace levin::comm::detail
