#include "levin/launch/manifest/manifest.h"

#include <cctype>
#include <filesystem>

#include "levin/base/check.h"
#include "levin/comm/environment/token.h"
#include "levin/launch/command_line.h"

namespace levin::launch {
namespace {

constexpr int64_t kSaveSeconds = 90;

}  // namespace

std::string detail::job_name(const LaunchOptions& options) {
  LEVIN_CHECK(!options.command.empty(), "launch.options",
              "no program to write a manifest for; give it after the options");
  std::string name;
  for (const char letter : std::filesystem::path(options.command.front()).filename().string()) {
    const bool plain = std::isalnum(static_cast<unsigned char>(letter)) != 0;
    name += plain ? static_cast<char>(std::tolower(static_cast<unsigned char>(letter))) : '-';
  }
  const size_t first = name.find_first_not_of('-');
  if (first == std::string::npos) return "levin";
  name = name.substr(first);
  // A label begins with a letter here, and is short enough for a pod's own part to follow.
  if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) name.insert(0, 1, 'j');
  name = name.substr(0, 40);
  return name.substr(0, name.find_last_not_of('-') + 1);
}

std::string sbatch_script(const LaunchOptions& options, const ManifestOptions& manifest) {
  const std::string name = detail::job_name(options);
  const NodeRange& range = options.nnodes;
  const std::string nodes =
      range.elastic() ? fmt::format("{}-{}", range.least, range.most) : std::to_string(range.most);
  const std::string gpus =
      manifest.gpus ? fmt::format("#SBATCH --gpus-per-node={}\n", options.nproc_per_node) : "";
  const std::string meet =
      range.most == 1 ? ""
                      : " --nnodes \"$SLURM_NNODES\" --rdzv-endpoint \"$head:$port\" --rdzv-id "
                        "\"$SLURM_JOB_ID\"";
  // By the environment, which srun hands on and other users cannot read.
  const std::string secret =
      range.most == 1 ? ""
                      : fmt::format("export {}=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')\n",
                                    comm::kTokenVariable);
  const std::string flags = shell_line(flags_of(options));
  return fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name={}\n"
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node=1\n"
      "{}"
      "#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n"
      "# {} s before the time is up the ranks save, and the job is queued again.\n"
      "#SBATCH --signal=USR1@{}\n"
      "\n"
      "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
      "port=$((10000 + SLURM_JOB_ID % 20000))\n"
      "{}"
      "srun levin run{} -n {}{}{} -- {}\n",
      name, nodes, gpus, kSaveSeconds, kSaveSeconds, secret, meet, options.nproc_per_node,
      flags.empty() ? "" : " ", flags, shell_line(options.command));
}

}  // namespace levin::launch
