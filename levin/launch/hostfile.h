#pragma once
// A hostfile, and a job over its hosts: one launcher on each, started by ssh from here.
//
//   gpu1 slots=4      # comment
//   gpu2 slots=2

#include <filesystem>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/launch/options.h"

namespace levin::launch {

struct Host {
  std::string name;
  int64_t slots = 0;  ///< ranks; 0: as many as --nproc-per-node says
};

/// Open MPI's and DeepSpeed's form. Throws Error "launch.hostfile" with the line.
LEVIN_API std::vector<Host> read_hostfile(const std::filesystem::path& file);

/// Starts `levin run` by ssh on each host, in this folder and with this process's LEVIN_, NCCL_ and
/// OMP_ variables and library path; on this host itself without ssh. The first host is the master.
/// Needs levin and the program at the same paths on all hosts. Returns the exit code of the job.
LEVIN_API int launch_on_hosts(const std::vector<Host>& hosts, const LaunchOptions& options);

}  // namespace levin::launch
