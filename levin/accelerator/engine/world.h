#pragma once
// World: the processes of a run. Found in the environment that a launcher left, or started from
// here.

#include <cstdint>
#include <string>

#include "levin/accelerator/options.h"
#include "levin/base/export.h"
#include "levin/comm/environment/environment.h"
#include "levin/comm/process_group.h"

namespace levin {

struct WorldOptions {
  int64_t devices = 0;        ///< processes on this machine; 0: as many as the launcher started
  int64_t devices_alone = 1;  ///< the same where there is no launcher
  int64_t num_nodes = 1;
  bool on_gpu = false;
  CommOptions comm = {};
};

/// Returns the number of processes that a program started by itself shall have.
LEVIN_API int64_t processes_alone(const WorldOptions& options);

/// Reads the environment that a launcher set, and checks it against the options. A program that was
/// started without a launcher and is asked for several devices starts that many ranks of itself,
/// stays as their supervisor and does not return. Throws Error "accelerator.devices".
LEVIN_API comm::Environment join_launch(const WorldOptions& options);

/// Connects all ranks. Throws the errors of ProcessGroup::connect.
LEVIN_API comm::ProcessGroup connect_world(const comm::Environment& environment,
                                           const WorldOptions& options);

}  // namespace levin
