#pragma once
// launch: starts a program as the ranks of a group, watches over them and starts them again.
// The first step of a run of several processes, before any of them reads data.
//
//   return launch::launch({.nproc_per_node = 4, .command = {"./train", "--epochs", "3"}});

#include <string>

#include "levin/launch/options.h"

namespace levin::launch {

/// Blocks until the job is over and returns the exit code for this process: 0, the one of the rank
/// that failed first (128 + n where signal n killed it), or 128 + n when signal n came to this
/// process and the ranks had saved. From the main thread, as the ranks die with the thread that
/// started them. Throws Error "launch.options", "launch.log", "launch.binding",
/// "launch.rendezvous" and "comm.environment.port".
LEVIN_API int launch(const LaunchOptions& options);

}  // namespace levin::launch
