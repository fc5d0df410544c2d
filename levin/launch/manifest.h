#pragma once
// The files that start the same command under Kubernetes and Slurm.

#include <string>

#include "levin/base/export.h"
#include "levin/launch/options.h"

namespace levin::launch {

/// A PyTorchJob of Kubeflow's training operator; the image is left for the user to fill in. Throws
/// Error "launch.options" when there is no program.
LEVIN_API std::string pytorch_job(const LaunchOptions& options);

/// A script for sbatch. Throws Error "launch.options" when there is no program.
LEVIN_API std::string sbatch_script(const LaunchOptions& options);

}  // namespace levin::launch
