#include "levin/comm/backends.h"

#include <sys/stat.h>

#include <array>
#include <fstream>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/comm/gloo/gloo.h"
#include "levin/comm/mpi/mpi.h"
#include "levin/comm/shm/backend.h"

namespace levin::comm {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

struct Maker {
  std::string_view name;
  BackendPointer (*make)(const BackendPlan&);
};

BackendPointer make_shm(const BackendPlan& plan) {
  return make_shm_backend(plan.store, plan.rank, plan.size, plan.timeout);
}

// This host's own name need not resolve to an address that the others reach; where the master is
// this very machine the loopback does.
BackendPointer make_gloo(const BackendPlan& plan) {
  const std::string& master = plan.master_address;
  const bool loopback = master == "127.0.0.1" || master == "localhost" || master == "::1";
  return make_gloo_backend(plan.store, plan.rank, plan.size, plan.timeout,
                           loopback ? "127.0.0.1" : "");
}

BackendPointer make_mpi(const BackendPlan& plan) {
  return make_mpi_backend(plan.rank, plan.size, plan.timeout, plan.global_ranks);
}

constexpr std::array<Maker, 3> kMakers = {
    {{"shm", make_shm}, {"gloo", make_gloo}, {"mpi", make_mpi}}};

std::vector<std::string> backend_names() {
  std::vector<std::string> names = {"auto"};
  for (const Maker& maker : kMakers) names.emplace_back(maker.name);
  return names;
}

/// Ranks of equal words share a kernel and its unix sockets.
std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat network = {};
  ::stat("/proc/self/ns/net", &network);
  return fmt::format("{}/{}", boot, network.st_ino);
}

bool all_on_one_host(c10d::Store& store, int64_t rank, int64_t size) {
  const auto key = [](int64_t of) { return fmt::format("host{}", of); };
  const std::string own = host_identity();
  store.set(key(rank), std::vector<uint8_t>(own.begin(), own.end()));
  for (int64_t other = 0; other < size; ++other) {
    const auto word = store.get(key(other));
    if (std::string(word.begin(), word.end()) != own) return false;
  }
  return true;
}

}  // namespace

std::string choose_backend(c10d::Store& store, int64_t rank, int64_t size,
                           const ProcessGroupOptions& options) {
  const bool one_host = all_on_one_host(store, rank, size);
  LEVIN_CHECK(options.backend != "shm" || one_host, "comm.backend",
              "got backend shm for ranks on several hosts, wanted gloo or auto; set --backend");
  if (options.backend != "auto") return options.backend;
  LEVIN_CHECK(!options.on_gpu, "comm.backend",
              "got several ranks on GPUs, which nccl would join, and this version of levin has no "
              "nccl; set --accelerator cpu");
  return one_host ? "shm" : "gloo";
}

BackendPointer make_backend(const std::string& name, const BackendPlan& plan) {
  for (const Maker& maker : kMakers) {
    if (maker.name == name) return maker.make(plan);
  }
  const auto names = backend_names();
  const auto close = nearest(name, names);
  LEVIN_FAIL("comm.backend", "got '{}', wanted one of {}; {}", name, to_text(names),
             close ? fmt::format("did you mean '{}'?", *close) : "set --backend");
}

}  // namespace levin::comm
