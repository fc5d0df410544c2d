#include "levin/base/check.h"
#include "levin/comm/environment/host_list.h"
#include "levin/comm/environment/launchers_impl.h"
#include "levin/comm/environment/port.h"
#include "levin/comm/environment/variables.h"

namespace levin::comm::detail {
namespace {

// Returns how many tasks srun started on this node: the entry for the node in a text such as
// "2(x3),1".
int64_t tasks_here(const Variables& variables, int64_t node, int64_t num_tasks) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (!variables.has(name)) continue;
    const auto counts = expand_counts(variables.text_or(name, ""));
    LEVIN_CHECK(node < static_cast<int64_t>(counts.size()), "comm.environment.rank",
                "SLURM_NODEID holds {}, but {} counts {} nodes", node, name, counts.size());
    return counts[static_cast<size_t>(node)];
  }
  return num_tasks;
}

std::string slurm_master(const Variables& variables) {
  if (variables.has("MASTER_ADDR")) return variables.text_or("MASTER_ADDR", "");
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}) {
    if (variables.has(name)) return expand_host_list(variables.text_or(name, "")).front();
  }
  LEVIN_FAIL("comm.environment.master",
             "SLURM_PROCID is set but no SLURM_STEP_NODELIST; set MASTER_ADDR to rank 0's host");
}

}  // namespace

// A batch script has SLURM_PROCID too, but only srun's tasks have a step: a program that a script
// starts bare is alone.
std::optional<Environment> read_slurm(const Variables& variables) {
  if (!variables.has("SLURM_PROCID") || !variables.has("SLURM_STEP_ID")) return std::nullopt;
  Environment environment;
  environment.launcher = "slurm";
  RankInfo& info = environment.rank;
  info.rank = variables.number("SLURM_PROCID", {}, "SLURM_STEP_ID");
  const char* tasks =
      variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  info.world_size = variables.number(tasks, {.least = 1}, "SLURM_PROCID");
  info.local_rank = variables.number("SLURM_LOCALID", {}, "SLURM_PROCID");
  environment.node_rank = variables.number("SLURM_NODEID", {}, "SLURM_PROCID");
  info.local_world_size = tasks_here(variables, environment.node_rank, info.world_size);
  environment.master_address = info.local_world_size == info.world_size
                                   ? variables.text_or("MASTER_ADDR", "127.0.0.1")
                                   : slurm_master(variables);
  // Several steps of one job may share a node.
  environment.run_id = variables.text("SLURM_JOB_ID", "SLURM_PROCID") + "." +
                       variables.text("SLURM_STEP_ID", "SLURM_PROCID");
  environment.master_port =
      variables.number_or("MASTER_PORT", kAnyPort, derived_port(environment.run_id));
  environment.restart_count = variables.number_or("SLURM_RESTART_COUNT", {}, 0);
  return environment;
}

}  // namespace levin::comm::detail
