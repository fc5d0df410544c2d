// levin run [OPTIONS] PROGRAM [ARGUMENTS]: torchrun's options for any program.
#include <ATen/Context.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/options/read_options.h"
#include "levin/comm/environment/token.h"
#include "levin/launch/hostfile.h"
#include "levin/launch/launch.h"
#include "levin/launch/manifest/manifest.h"
#include "tools/command.h"
#include "tools/run_options.h"

namespace levin::tools {
namespace {

constexpr const char* kAbout =
    "Starts a program as the ranks of a group, watches them and restarts them after a failure. An "
    "option\nthat neither a flag nor the file sets is read from its environment variable, for "
    "example --nnodes\nfrom PET_NNODES.";

int64_t num_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}

bool is_by_gpu(const std::string& text) {
  return text == "gpu" || (text == "auto" && at::hasCUDA());
}

// torchrun's words: gpu, cpu and auto.
int64_t processes_of(const std::string& text) {
  if (is_by_gpu(text)) return static_cast<int64_t>(at::getNumGPUs());
  if (text == "cpu" || text == "auto") return num_cpus();
  int64_t count = 0;
  try {
    from_text(text, count);
  } catch (const Error&) {
    LEVIN_FAIL("tools.run", "--nproc-per-node: got '{}', wanted a number, cpu, gpu or auto", text);
  }
  return count;
}

void check_flags(const RunOptions& flags) {
  const launch::LaunchOptions& options = flags.launch;
  LEVIN_CHECK(flags.rdzv_backend == "c10d" || flags.rdzv_backend == "static", "tools.run",
              "--rdzv-backend: got '{}', wanted c10d or static", flags.rdzv_backend);
  const bool meets = !options.rdzv_endpoint.empty() || options.node_rank;
  LEVIN_CHECK(flags.hostfile.empty() || !meets, "tools.run",
              "--hostfile lists the nodes; leave out --rdzv-endpoint and --node-rank");
  LEVIN_CHECK(!flags.standalone || (options.nnodes.most == 1 && options.rdzv_endpoint.empty()),
              "tools.run", "--standalone is for one node; leave out --nnodes and --rdzv-endpoint");
  const auto& shown = options.local_ranks_filter;
  LEVIN_CHECK(std::ranges::all_of(shown, [](int64_t rank) { return rank >= 0; }), "tools.run",
              "--local-ranks-filter: got '{}', wanted ranks of this machine, as 0,2",
              levin::to_text(shown));
}

void check_manifest(const ManifestFlags& flags) {
  const auto& [image, gpus, tpu_topology, token] = flags.options;
  const std::string& kind = flags.print_manifest;
  LEVIN_CHECK(kind != "no" || (image.empty() && !gpus && tpu_topology.empty()), "tools.run",
              "--image, --gpus and --tpu-topology belong to --print-manifest; add it");
  constexpr std::array<std::string_view, 5> kKinds = {"no", "true", "pytorchjob", "jobset",
                                                      "sbatch"};
  LEVIN_CHECK(std::ranges::find(kKinds, kind) != kKinds.end(), "tools.run",
              "--print-manifest: got '{}', wanted pytorchjob, jobset or sbatch", kind);
  LEVIN_CHECK(kind != "jobset" || !tpu_topology.empty(), "tools.run",
              "a jobset is for a TPU slice; name it with --tpu-topology v5e:4x4");
  LEVIN_CHECK(tpu_topology.empty() || kind == "true" || kind == "jobset", "tools.run",
              "--tpu-topology is for a jobset, got --print-manifest={}", kind);
}

int print_manifest(const RunOptions& run, const ManifestFlags& flags) {
  launch::ManifestOptions manifest = flags.options;
  manifest.gpus = manifest.gpus || is_by_gpu(run.nproc_per_node);
  manifest.token = comm::new_token();
  if (!manifest.tpu_topology.empty()) {
    std::cout << launch::job_set(run.launch, manifest);
    return 0;
  }
  const std::string& kind = flags.print_manifest;
  if (kind != "sbatch") std::cout << launch::pytorch_job(run.launch, manifest);
  if (kind == "true") std::cout << "\n---\n";
  if (kind != "pytorchjob") std::cout << launch::sbatch_script(run.launch, manifest);
  return 0;
}

// A PyTorchJob sets PET_MASTER_ADDR beside PET_RDZV_ENDPOINT; the endpoint says more.
void prefer_endpoint(launch::LaunchOptions& options) {
  const char* master = std::getenv("PET_MASTER_ADDR");
  if (options.rdzv_endpoint.empty() || master == nullptr || options.master_addr != master) return;
  options.master_addr.clear();
  options.master_port.reset();
}

}  // namespace

int run(int argc, char** argv) {
  RunOptions run;
  ManifestFlags manifest;
  const auto read = detail::read_options({argv + std::min(argc, 1), argv + argc},
                                         {.program = "levin run",
                                          .about = kAbout,
                                          .takes_program = true,
                                          .config = run_config_path(),
                                          .error_id = "tools.run"},
                                         [&](FieldVisitor& field) {
                                           run.fields(field);
                                           manifest.fields(field);
                                         });
  if (read.text) {
    std::cout << *read.text;
    return 0;
  }
  launch::LaunchOptions& options = run.launch;
  options.command = read.program;
  options.nproc_per_node = processes_of(run.nproc_per_node);
  prefer_endpoint(options);
  check_flags(run);
  check_manifest(manifest);
  if (manifest.print_manifest != "no") return print_manifest(run, manifest);
  if (!run.hostfile.empty()) {
    return launch::launch_on_hosts(launch::read_hostfile(run.hostfile), options);
  }
  return launch::launch(options);
}

}  // namespace levin::tools
