#pragma once
// The files that start the same command under Kubernetes and Slurm.
//
//   launch::job_set(options, {.image = "registry/train:1", .tpu_topology = "v5e:4x4"})

#include <string>

#include "levin/base/export.h"
#include "levin/launch/options.h"

namespace levin::launch {

struct ManifestOptions {
  std::string image = {};         ///< with levin and the program; empty: IMAGE, to be filled in
  bool gpus = false;              ///< each rank takes a GPU
  std::string tpu_topology = {};  ///< parse_tpu_slice's
  std::string token = {};         ///< for several nodes: the job's secret, as a Secret of its own
};

/// A PyTorchJob of Kubeflow's training operator (kubeflow.org/v1). Throws Error "launch.options"
/// when there is no program.
LEVIN_API std::string pytorch_job(const LaunchOptions& options,
                                  const ManifestOptions& manifest = {});

/// A JobSet (jobset.x-k8s.io/v1alpha2) that runs the command once on each host of a slice of TPUs
/// of Google Kubernetes Engine, a rank holding its host's chips. Throws Error "launch.options" when
/// there is no program; "launch.tpu" for a topology that GKE does not have, an elastic job, more
/// than one rank per node, GPUs, and --nnodes that is neither 1 nor the slice's number of hosts.
LEVIN_API std::string job_set(const LaunchOptions& options, const ManifestOptions& manifest);

/// A script for sbatch, which takes no image and no TPUs. Throws Error "launch.options" when there
/// is no program.
LEVIN_API std::string sbatch_script(const LaunchOptions& options,
                                    const ManifestOptions& manifest = {});

namespace detail {

/// A DNS label: "bin/Train_2.sh" is train-2-sh. Throws Error "launch.options" when there is no
/// program.
LEVIN_API std::string job_name(const LaunchOptions& options);

}  // namespace detail

}  // namespace levin::launch
