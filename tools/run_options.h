#pragma once
// RunOptions: the command line of `levin run`, which `levin config` writes to a file that run reads.
//
//   levin run -n 4 --max-restarts 2 ./train --epochs 3

#include <filesystem>
#include <string>

#include "levin/base/options.h"
#include "levin/launch/manifest/manifest.h"
#include "levin/launch/options.h"

namespace levin::tools {

/// The options that torchrun has too, each with its PET_ variable.
struct RunOptions {
  launch::LaunchOptions launch = {};  ///< but for nproc_per_node and the command
  std::string nproc_per_node = "1";   ///< a number, cpu, gpu or auto
  std::string rdzv_backend = "c10d";  ///< or static: both are one here
  std::string hostfile = {};          ///< lines of HOST slots=N
  bool standalone = false;            ///< one node on a free port, the default
  bool no_python = false;             ///< programs are run as they are in either case

  void fields(FieldVisitor& field);
};

/// The files for Kubernetes and Slurm, which `levin run --print-manifest` prints.
struct ManifestFlags {
  std::string print_manifest = "no";  ///< pytorchjob, jobset or sbatch; true: all that fit
  launch::ManifestOptions options = {};

  void fields(FieldVisitor& field);
};

/// What `levin config` writes and `levin run` reads when it is there: run.toml in
/// $XDG_CONFIG_HOME/levin, or in ~/.config/levin.
std::filesystem::path run_config_path();

}  // namespace levin::tools
