#pragma once
// The flags of `levin run`, which `levin config` writes to a file that run reads.

#include <filesystem>
#include <memory>
#include <string>

#include "levin/launch/manifest/manifest.h"
#include "levin/launch/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace levin::tools {

/// What the command line says before it is understood.
struct RunFlags {
  std::string nproc_per_node = "1", nnodes = "1", rdzv_conf, rdzv_backend = "c10d";
  std::string local_ranks_filter, hostfile, manifest;
  launch::ManifestOptions manifest_options;
  bool standalone = false;
};

/// What `levin config` writes and `levin run` reads when it is there: run.toml in
/// $XDG_CONFIG_HOME/levin, or in ~/.config/levin.
std::filesystem::path run_config_path();

/// A parser of the flags under both spellings that torchrun takes, each with its PET_ variable.
/// subcommand: run, which takes a program too and what it is not told from that file, or config.
std::unique_ptr<CLI::App> make_run_parser(launch::LaunchOptions& options, RunFlags& flags,
                                          const std::string& subcommand);

}  // namespace levin::tools
