#include <nlohmann/json.hpp>

#include <cmath>

#include "levin/base/check.h"
#include "levin/comm/environment/kubeflow.h"
#include "levin/comm/environment/token.h"
#include "levin/launch/command_line.h"
#include "levin/launch/manifest/manifest.h"
#include "levin/launch/manifest/tpu_slice.h"
#include "levin/launch/manifest/yaml.h"

namespace levin::launch {
namespace {

using nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr double kGraceSeconds = 15;
constexpr int64_t kMeetingPort = 29400;
constexpr const char* kReplicatedJob = "slice";

Words command_in_pod(const LaunchOptions& options, const Words& meeting_flags) {
  Words words = {"levin", "run"};
  words.insert(words.end(), meeting_flags.begin(), meeting_flags.end());
  for (const std::string& flag : flags_of(options)) words.push_back(flag);
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

// The ranks have their time to save, and the launchers theirs to agree on it.
int64_t grace_seconds(const LaunchOptions& options) {
  return std::llround(options.shutdown_timeout_s + kGraceSeconds);
}

std::string header(const ManifestOptions& manifest) {
  if (!manifest.image.empty()) return "";
  return "# IMAGE: one with levin and the program; --image NAME fills it in.\n";
}

std::string text_of(const char* version, const char* kind, const ordered_json& metadata,
                    const ordered_json& spec) {
  const ordered_json document = {
      {"apiVersion", version}, {"kind", kind}, {"metadata", metadata}, {"spec", spec}};
  return detail::yaml_of(document.dump());
}

std::string image_of(const ManifestOptions& manifest) {
  return manifest.image.empty() ? "IMAGE" : manifest.image;
}

// NCCL's ranks of a pod meet in /dev/shm; a container's default for it is 64 MB. (levin's own
// segments are memfds, which count only as the container's memory.)
void add_shared_memory(ordered_json& pod) {
  pod["containers"][0]["volumeMounts"] =
      ordered_json::array({{{"name", "shm"}, {"mountPath", "/dev/shm"}}});
  pod["volumes"] = ordered_json::array({{{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}}}}});
}

std::string secret_of(const std::string& job) { return job + "-token"; }

// Kubernetes decides who may read secrets. A plain environment value is open to everyone who may
// look at pods.
ordered_json token_variable(const std::string& job) {
  return {{"name", comm::kTokenVariable},
          {"valueFrom", {{"secretKeyRef", {{"name", secret_of(job)}, {"key", "token"}}}}}};
}

std::string secret_document(const std::string& job, const std::string& token) {
  const ordered_json document = {{"apiVersion", "v1"},
                                 {"kind", "Secret"},
                                 {"metadata", {{"name", secret_of(job)}}},
                                 {"stringData", {{"token", token}}}};
  return detail::yaml_of(document.dump()) + "---\n";
}

bool takes_token(int64_t num_nodes, const ManifestOptions& manifest) {
  return num_nodes > 1 && !manifest.token.empty();
}

// The operator hands each pod PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK and where to meet.
ordered_json replicas(int64_t count, const LaunchOptions& options,
                      const ManifestOptions& manifest) {
  LEVIN_CHECK(options.nproc_per_node >= 1, "launch.options",
              "--nproc-per-node: got {}, wanted at least 1; give it as a number",
              options.nproc_per_node);
  ordered_json container = {
      {"name", "pytorch"}, {"image", image_of(manifest)}, {"command", command_in_pod(options, {})}};
  if (manifest.gpus) {
    container["resources"]["limits"]["nvidia.com/gpu"] = options.nproc_per_node;
  }
  if (takes_token(options.nnodes.most, manifest)) {
    container["env"] = ordered_json::array({token_variable(detail::job_name(options))});
  }
  ordered_json pod = {{"terminationGracePeriodSeconds", grace_seconds(options)},
                      {"containers", ordered_json::array({container})}};
  if (options.nproc_per_node > 1) add_shared_memory(pod);
  return {{"replicas", count}, {"restartPolicy", "ExitCode"}, {"template", {{"spec", pod}}}};
}

TpuSlice slice_for(const LaunchOptions& options, const ManifestOptions& manifest) {
  TpuSlice slice = parse_tpu_slice(manifest.tpu_topology);
  LEVIN_CHECK(!manifest.gpus && options.nproc_per_node == 1, "launch.tpu",
              "got {} ranks per node{}, but on TPUs one rank uses all chips of its host; leave out "
              "--nproc-per-node and --gpus",
              options.nproc_per_node, manifest.gpus ? " with a GPU each" : "");
  const NodeRange& range = options.nnodes;
  LEVIN_CHECK(!range.elastic() && (range.most == 1 || range.most == slice.num_hosts), "launch.tpu",
              "got --nnodes {}:{}, but {} always has {} hosts of {} chips; leave out --nnodes",
              range.least, range.most, manifest.tpu_topology, slice.num_hosts,
              slice.chips_per_host);
  return slice;
}

// A JobSet gives the pods of an indexed job names in its headless service. GKE hands them
// TPU_WORKER_ID and TPU_WORKER_HOSTNAMES, for they ask for TPUs.
ordered_json pod_on_tpus(const TpuSlice& slice, const LaunchOptions& options,
                         const ManifestOptions& manifest) {
  Words meeting;
  const std::string name = detail::job_name(options);
  if (slice.num_hosts > 1) {
    meeting = {"--nnodes", std::to_string(slice.num_hosts), "--rdzv-endpoint",
               fmt::format("{}-{}-0-0.{}:{}", name, kReplicatedJob, name, kMeetingPort)};
  }
  ordered_json container = {
      {"name", "levin"},
      {"image", image_of(manifest)},
      {"command", command_in_pod(options, meeting)},
      {"resources", {{"limits", {{"google.com/tpu", slice.chips_per_host}}}}}};
  if (slice.num_hosts > 1) {
    const char* index = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
    container["env"] = ordered_json::array(
        {{{"name", "PET_NODE_RANK"}, {"valueFrom", {{"fieldRef", {{"fieldPath", index}}}}}}});
    if (takes_token(slice.num_hosts, manifest)) container["env"].push_back(token_variable(name));
  }
  return {{"restartPolicy", "Never"},
          {"terminationGracePeriodSeconds", grace_seconds(options)},
          {"nodeSelector",
           {{"cloud.google.com/gke-tpu-accelerator", slice.accelerator},
            {"cloud.google.com/gke-tpu-topology", slice.topology}}},
          {"containers", ordered_json::array({container})}};
}

// A slice computes with all of its hosts or not at all: a pod that is gone ends the job, and the
// JobSet begins anew, unless the program has failed by itself, which levin run has tried again.
ordered_json job_of(const TpuSlice& slice, const ordered_json& pod) {
  constexpr int kKilled = 128 + 9, kAskedToEnd = 128 + 15;
  const ordered_json failed = {{"containerName", "levin"},
                               {"operator", "NotIn"},
                               {"values", {kKilled, comm::kRetryExitCode, kAskedToEnd}}};
  return {{"completionMode", "Indexed"},
          {"completions", slice.num_hosts},
          {"parallelism", slice.num_hosts},
          {"backoffLimit", 0},
          {"podFailurePolicy",
           {{"rules", ordered_json::array({{{"action", "FailJob"}, {"onExitCodes", failed}}})}}},
          {"template", {{"spec", pod}}}};
}

}  // namespace

std::string pytorch_job(const LaunchOptions& options, const ManifestOptions& manifest) {
  const NodeRange& range = options.nnodes;
  ordered_json spec = {{"nprocPerNode", std::to_string(options.nproc_per_node)}};
  if (range.elastic()) {
    spec["elasticPolicy"] = {{"rdzvBackend", "c10d"},
                             {"minReplicas", range.least},
                             {"maxReplicas", range.most},
                             {"maxRestarts", options.max_restarts}};
  }
  const int64_t num_masters = range.elastic() ? 0 : 1;
  ordered_json& specs = spec["pytorchReplicaSpecs"];
  if (num_masters > 0) specs["Master"] = replicas(num_masters, options, manifest);
  if (const int64_t num_workers = range.most - num_masters; num_workers > 0) {
    specs["Worker"] = replicas(num_workers, options, manifest);
  }
  const std::string name = detail::job_name(options);
  const std::string secret =
      takes_token(range.most, manifest) ? secret_document(name, manifest.token) : "";
  return secret + header(manifest) +
         text_of("kubeflow.org/v1", "PyTorchJob", {{"name", name}}, spec);
}

std::string job_set(const LaunchOptions& options, const ManifestOptions& manifest) {
  const std::string name = detail::job_name(options);
  const TpuSlice slice = slice_for(options, manifest);
  const ordered_json program_failed = {
      {"name", "programFailed"},
      {"action", "FailJobSet"},
      {"onJobFailureReasons", ordered_json::array({"PodFailurePolicy"})}};
  const ordered_json job = {
      {"name", kReplicatedJob},
      {"replicas", 1},
      {"template", {{"spec", job_of(slice, pod_on_tpus(slice, options, manifest))}}}};
  const ordered_json spec = {
      {"failurePolicy",
       {{"maxRestarts", options.max_restarts}, {"rules", ordered_json::array({program_failed})}}},
      {"replicatedJobs", ordered_json::array({job})}};
  ordered_json metadata = {{"name", name}};
  if (slice.num_hosts > 1) {  // all pods on one node pool, which is what a slice is
    metadata["annotations"] = {
        {"alpha.jobset.sigs.k8s.io/exclusive-topology", "cloud.google.com/gke-nodepool"}};
  }
  const std::string pool =
      fmt::format("# For a node pool of {} with the topology {}: {} host{} of {} chip{}.\n",
                  slice.machine, slice.topology, slice.num_hosts, slice.num_hosts > 1 ? "s" : "",
                  slice.chips_per_host, slice.chips_per_host > 1 ? "s" : "");
  const std::string secret =
      takes_token(slice.num_hosts, manifest) ? secret_document(name, manifest.token) : "";
  return secret + pool + header(manifest) +
         text_of("jobset.x-k8s.io/v1alpha2", "JobSet", metadata, spec);
}

}  // namespace levin::launch
