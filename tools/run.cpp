// levin run [OPTIONS] PROGRAM [ARGUMENTS]: torchrun's options for any program.
#include <ATen/Context.h>
#include <CLI/CLI.hpp>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/comm/environment/token.h"
#include "levin/launch/hostfile.h"
#include "levin/launch/launch.h"
#include "levin/launch/manifest/manifest.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/run_parser.h"

namespace levin::tools {
namespace {

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

std::vector<int64_t> ranks_of(const std::string& text) {
  std::vector<int64_t> ranks;
  try {
    from_text(text, ranks);
  } catch (const Error&) {
    ranks = {-1};
  }
  LEVIN_CHECK(std::ranges::all_of(ranks, [](int64_t rank) { return rank >= 0; }), "tools.run",
              "--local-ranks-filter: got '{}', wanted ranks of this machine, as 0,2", text);
  return ranks;
}

void check_flags(const RunFlags& flags, const launch::LaunchOptions& options) {
  LEVIN_CHECK(flags.rdzv_backend == "c10d" || flags.rdzv_backend == "static", "tools.run",
              "--rdzv-backend: got '{}', wanted c10d or static", flags.rdzv_backend);
  const bool meets = !options.rdzv_endpoint.empty() || options.node_rank;
  LEVIN_CHECK(flags.hostfile.empty() || !meets, "tools.run",
              "--hostfile says which nodes there are; leave out --rdzv-endpoint and --node-rank");
  LEVIN_CHECK(!flags.standalone || (options.nnodes.most == 1 && options.rdzv_endpoint.empty()),
              "tools.run", "--standalone is for one node; leave out --nnodes and --rdzv-endpoint");
}

void check_manifest(const RunFlags& flags) {
  const auto& [image, gpus, tpu_topology, token] = flags.manifest_options;
  LEVIN_CHECK(!flags.manifest.empty() || (image.empty() && !gpus && tpu_topology.empty()),
              "tools.run", "--image, --gpus and --tpu-topology are for --print-manifest; add it");
  constexpr std::array<std::string_view, 5> kKinds = {"", "true", "pytorchjob", "jobset", "sbatch"};
  LEVIN_CHECK(std::ranges::find(kKinds, flags.manifest) != kKinds.end(), "tools.run",
              "--print-manifest: got '{}', wanted pytorchjob, jobset or sbatch", flags.manifest);
  LEVIN_CHECK(flags.manifest != "jobset" || !tpu_topology.empty(), "tools.run",
              "a jobset is for a slice of TPUs; say which by --tpu-topology v5e:4x4");
  LEVIN_CHECK(tpu_topology.empty() || flags.manifest == "true" || flags.manifest == "jobset",
              "tools.run", "--tpu-topology is for a jobset, got --print-manifest={}",
              flags.manifest);
}

int print_manifest(const RunFlags& flags, const launch::LaunchOptions& options) {
  launch::ManifestOptions manifest = flags.manifest_options;
  manifest.gpus = manifest.gpus || is_by_gpu(flags.nproc_per_node);
  manifest.token = comm::new_token();
  if (!manifest.tpu_topology.empty()) {
    std::cout << launch::job_set(options, manifest);
    return 0;
  }
  const bool both = flags.manifest == "true";
  if (flags.manifest != "sbatch") std::cout << launch::pytorch_job(options, manifest);
  if (both) std::cout << "\n---\n";
  if (flags.manifest != "pytorchjob") std::cout << launch::sbatch_script(options, manifest);
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
  launch::LaunchOptions options;
  RunFlags flags;
  const auto app = make_run_parser(options, flags, "run");
  if (!parse_arguments(*app, argc, argv, "tools.run")) return 0;
  options.command = program_of(*app, "run");
  options.nproc_per_node = processes_of(flags.nproc_per_node);
  options.nnodes = launch::parse_node_range(flags.nnodes);
  launch::set_rendezvous_timeouts(flags.rdzv_conf, options);
  options.local_ranks_filter = ranks_of(flags.local_ranks_filter);
  prefer_endpoint(options);
  check_flags(flags, options);
  check_manifest(flags);
  if (!flags.manifest.empty()) return print_manifest(flags, options);
  if (!flags.hostfile.empty()) {
    return launch::launch_on_hosts(launch::read_hostfile(flags.hostfile), options);
  }
  return launch::launch(options);
}

}  // namespace levin::tools
