#include "levin/launch/peers.h"

#include <fstream>
#include <iterator>

namespace levin::launch {
namespace {

std::vector<std::string> own_command() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> command;
  for (std::string argument; std::getline(in, argument, '\0');) command.push_back(argument);
  return command;
}

}  // namespace

int run_peers(const PeerOptions& options) {
  LaunchOptions launch;
  launch.nproc_per_node = options.num_processes;
  launch.max_restarts = options.max_restarts;
  launch.shutdown_timeout_s = options.shutdown_timeout_s;
  launch.failure_timeout_s = options.failure_timeout_s;
  launch.first_rank_plain = true;
  launch.command = own_command();
  // The link is this program's own file even where that was replaced or deleted meanwhile.
  return detail::supervise(launch, "/proc/self/exe");
}

}  // namespace levin::launch
