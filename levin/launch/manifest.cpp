#include "levin/launch/manifest.h"

#include <nlohmann/json.hpp>

#include <cctype>
#include <filesystem>

#include "levin/base/check.h"
#include "levin/launch/command_line.h"

namespace levin::launch {
namespace {

constexpr double kGraceSeconds = 15;
constexpr int64_t kSaveSeconds = 90;

void need_program(const LaunchOptions& options) {
  LEVIN_CHECK(!options.command.empty(), "launch.options",
              "no program to write a manifest for; give it after the options");
}

// A DNS label: "Train_2.sh" is train-2-sh.
std::string job_name(const LaunchOptions& options) {
  std::string name;
  for (const char letter : std::filesystem::path(options.command.front()).filename().string()) {
    const bool plain = std::isalnum(static_cast<unsigned char>(letter)) != 0;
    name += plain ? static_cast<char>(std::tolower(static_cast<unsigned char>(letter))) : '-';
  }
  const size_t first = name.find_first_not_of('-');
  if (first == std::string::npos) return "levin";
  name = name.substr(first, name.find_last_not_of('-') + 1 - first);
  // A label begins with a letter here and ends before the pod's own part.
  return (std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? "j" + name : name).substr(0, 40);
}

std::vector<std::string> command_in_pod(const LaunchOptions& options) {
  std::vector<std::string> words = {"levin", "run"};
  for (const std::string& flag : flags_of(options)) words.push_back(flag);
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

// A JSON array of strings is YAML too.
std::string replicas(const char* kind, int64_t count, const LaunchOptions& options) {
  return fmt::format(
      "    {}:\n"
      "      replicas: {}\n"
      "      restartPolicy: ExitCode\n"
      "      template:\n"
      "        spec:\n"
      "          terminationGracePeriodSeconds: {:.0f}\n"
      "          containers:\n"
      "            - name: pytorch\n"
      "              image: IMAGE  # with levin and the program\n"
      "              command: {}\n",
      kind, count, options.shutdown_timeout_s + kGraceSeconds,
      nlohmann::json(command_in_pod(options)).dump());
}

}  // namespace

// The operator hands each pod PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK and where to meet.
std::string pytorch_job(const LaunchOptions& options) {
  need_program(options);
  const NodeRange& range = options.nnodes;
  std::string text = fmt::format(
      "apiVersion: kubeflow.org/v1\n"
      "kind: PyTorchJob\n"
      "metadata:\n"
      "  name: {}\n"
      "spec:\n"
      "  nprocPerNode: \"{}\"\n",
      job_name(options), options.nproc_per_node);
  if (range.elastic()) {
    text += fmt::format(
        "  elasticPolicy:\n"
        "    rdzvBackend: c10d\n"
        "    minReplicas: {}\n"
        "    maxReplicas: {}\n"
        "    maxRestarts: {}\n",
        range.least, range.most, options.max_restarts);
  }
  text += "  pytorchReplicaSpecs:\n";
  if (range.elastic()) return text + replicas("Worker", range.most, options);
  text += replicas("Master", 1, options);
  return range.most == 1 ? text : text + replicas("Worker", range.most - 1, options);
}

std::string sbatch_script(const LaunchOptions& options) {
  need_program(options);
  const NodeRange& range = options.nnodes;
  const std::string nodes =
      range.elastic() ? fmt::format("{}-{}", range.least, range.most) : std::to_string(range.most);
  const std::string meet =
      range.most == 1 ? ""
                      : " --nnodes \"$SLURM_NNODES\" --rdzv-endpoint \"$head:$port\" --rdzv-id "
                        "\"$SLURM_JOB_ID\"";
  const std::string flags = shell_line(flags_of(options));
  return fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name={}\n"
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node=1\n"
      "#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n"
      "# {} s before the time is up the ranks save, and the job is queued again.\n"
      "#SBATCH --signal=USR1@{}\n"
      "\n"
      "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
      "port=$((10000 + SLURM_JOB_ID % 20000))\n"
      "srun levin run{} -n {}{}{} -- {}\n",
      job_name(options), nodes, kSaveSeconds, kSaveSeconds, meet, options.nproc_per_node,
      flags.empty() ? "" : " ", flags, shell_line(options.command));
}

}  // namespace levin::launch
