#include "levin/accelerator/engine/world.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "levin/base/check.h"
#include "levin/comm/backends.h"
#include "levin/launch/peers.h"

namespace levin {
namespace {

void check_launch(const comm::Environment& environment, const WorldOptions& options) {
  const RankInfo& rank = environment.rank;
  const int64_t here = rank.local_world_size;
  LEVIN_CHECK(options.devices == 0 || options.devices == here, "accelerator.devices",
              "got --devices {}, but {} has started {} processes on this machine; leave --devices "
              "out, or start as many",
              options.devices, environment.launcher, here);
  const int64_t nodes = rank.world_size / here;
  LEVIN_CHECK(options.num_nodes == 1 || options.num_nodes == nodes, "accelerator.devices",
              "got --num-nodes {}, but {} has started processes on {} machines; leave --num-nodes "
              "out, or start as many",
              options.num_nodes, environment.launcher, nodes);
  LEVIN_CHECK(environment.processes_per_node == 1, "accelerator.devices",
              "this pod was asked for {} processes but has one; start the program with `levin run`",
              environment.processes_per_node);
}

/// Checks the options before any process is started, also for a single process, which needs none of
/// them.
void check_options(const WorldOptions& options) {
  comm::check_backend_name(options.comm.backend);
  for (const auto& [flag, seconds] :
       {std::pair("--comm-timeout-s", options.comm.timeout_s),
        std::pair("--comm-connect-timeout-s", options.comm.connect_timeout_s),
        std::pair("--comm-prepare-timeout-s", options.comm.prepare_timeout_s)}) {
    LEVIN_CHECK(seconds > 0, "comm.options", "got {} {}, wanted seconds above 0", flag, seconds);
  }
  LEVIN_CHECK(options.num_nodes >= 1, "accelerator.devices",
              "got --num-nodes {}, wanted at least 1", options.num_nodes);
}

}  // namespace

int64_t processes_alone(const WorldOptions& options) {
  return options.devices > 0 ? options.devices : options.devices_alone;
}

comm::Environment join_launch(const WorldOptions& options) {
  check_options(options);
  const comm::Environment environment = comm::read_environment();
  if (environment.launcher != "alone") {
    check_launch(environment, options);
    return environment;
  }
  LEVIN_CHECK(options.num_nodes == 1, "accelerator.devices",
              "got --num-nodes {}, but no launcher started this program; start it on every machine "
              "with `levin run --nnodes {}`, torchrun, mpirun or srun",
              options.num_nodes, options.num_nodes);
  const int64_t processes = processes_alone(options);
  if (processes <= 1) return environment;
  std::fflush(nullptr);
  std::exit(launch::run_peers({.num_processes = processes}));
}

comm::ProcessGroup connect_world(const comm::Environment& environment,
                                 const WorldOptions& options) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
  };
  return comm::ProcessGroup::connect(
      environment, {.backend = options.comm.backend,
                    .on_gpu = options.on_gpu,
                    .timeout = milliseconds(options.comm.timeout_s),
                    .connect_timeout = milliseconds(options.comm.connect_timeout_s),
                    .check = options.comm.check});
}

}  // namespace levin
