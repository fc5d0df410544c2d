#include "levin/comm/environment/kubeflow.h"

#include <netdb.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/comm/environment/launchers_impl.h"
#include "levin/comm/environment/variables.h"

namespace levin::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int64_t kKubeflowPort = 23456;

// PET_NPROC_PER_NODE may be a word (auto, cpu, gpu), which only a launcher can make a number of.
int64_t processes_per_pod(const Variables& variables) {
  const std::string held = variables.text_or("PET_NPROC_PER_NODE", "1");
  if (held == "auto" || held == "cpu" || held == "gpu") return 1;
  return variables.number_or("PET_NPROC_PER_NODE", {.least = 1}, 1);
}

// PET_NNODES is min:max in an elastic job, whose pods only a launcher can number.
int64_t num_pods(const Variables& variables) {
  const bool elastic = variables.text_or("PET_NNODES", "").find(':') != std::string::npos;
  LEVIN_CHECK(!elastic, "comm.environment.number",
              "PET_NNODES holds '{}', wanted one number; start an elastic job with levin run",
              variables.text_or("PET_NNODES", ""));
  if (variables.has("PET_NNODES")) return variables.number("PET_NNODES", {.least = 1}, "");
  return variables.number("WORLD_SIZE", {.least = 1}, "KUBERNETES_SERVICE_HOST");
}

}  // namespace

// A PyTorchJob sets RANK, WORLD_SIZE (of pods; newer ones times the processes of a pod) and
// MASTER_ADDR, a TrainJob PET_NODE_RANK, PET_NNODES and PET_MASTER_ADDR, newer PyTorchJobs both.
std::optional<Environment> detail::read_kubeflow(const Variables& variables) {
  const bool pytorch_job = variables.has("KUBERNETES_SERVICE_HOST") && variables.has("WORLD_SIZE");
  if (!variables.has("PET_NNODES") && !variables.has("PET_NODE_RANK") && !pytorch_job) {
    return std::nullopt;
  }
  const std::string prefix = variables.has("PET_MASTER_ADDR") ? "PET_" : "";
  const std::string rank = variables.has("PET_NODE_RANK") ? "PET_NODE_RANK" : "RANK";
  Environment environment;
  environment.launcher = "kubeflow";
  environment.rank.world_size = num_pods(variables);
  environment.rank.rank = variables.number(rank, {}, "PET_NNODES or WORLD_SIZE of a pod");
  environment.node_rank = environment.rank.rank;
  environment.processes_per_node = processes_per_pod(variables);
  environment.run_id = variables.text_or("PET_RDZV_ID", "");
  if (environment.rank.world_size == 1) {
    environment.master_address = variables.text_or(prefix + "MASTER_ADDR", "127.0.0.1");
  } else {
    environment.master_address = variables.text(prefix + "MASTER_ADDR", rank);
  }
  environment.master_port = variables.number_or(prefix + "MASTER_PORT", kAnyPort, kKubeflowPort);
  return environment;
}

bool in_kubernetes() { return std::getenv("KUBERNETES_SERVICE_HOST") != nullptr; }

void wait_for_name(const std::string& host, milliseconds timeout) {
  const auto start = Clock::now();
  milliseconds pause(50);
  for (bool told = false;; pause = std::min(pause * 2, milliseconds(2000))) {
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found);
    if (found != nullptr) ::freeaddrinfo(found);
    if (error == 0) return;
    const auto left = timeout - std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    const double limit_s = std::chrono::duration<double>(timeout).count();
    LEVIN_CHECK(left.count() > 0, "comm.environment.name",
                "the master's name '{}' did not resolve within {} s ({}); check the name, and that "
                "its pod or host is up",
                host, limit_s, ::gai_strerror(error));
    if (!told) log::info("waiting up to {} s for the master's name '{}' to resolve", limit_s, host);
    told = true;
    std::this_thread::sleep_for(std::min(pause, left));
  }
}

}  // namespace levin::comm
