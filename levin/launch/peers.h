#pragma once
// run_peers: how a program that was started bare with --devices 4 becomes four ranks.
//
//   if (comm::read_environment().launcher == "alone" && devices > 1) {
//     std::exit(launch::run_peers({.num_processes = devices}));  // the ranks do not come here
//   }

#include <cstdint>
#include <string>

#include "levin/base/export.h"
#include "levin/launch/options.h"

namespace levin::launch {

struct PeerOptions {
  int64_t num_processes = 1;
  int64_t max_restarts = 0;
  double shutdown_timeout_s = 30;  ///< for ranks that were asked to save and end
  double failure_timeout_s = 0.3;  ///< for the other ranks when one has failed
};

/// Starts this program again with the same arguments as each of the ranks, under torchrun's
/// variables, and stays as their supervisor. Returns the exit code to end with. From the main
/// thread and before LibTorch has done work, whose threads and memory would stay idle beside the
/// ranks. Throws as launch() does.
LEVIN_API int run_peers(const PeerOptions& options);

namespace detail {
/// Returns the job's secret from the options, the first line of stdin or the environment; "": none.
/// Throws Error "launch.options".
std::string token_for(const LaunchOptions& options);

/// launch() of a file that need not be the command's first word.
int supervise(const LaunchOptions& options, const std::string& program);
}  // namespace detail

}  // namespace levin::launch
