#include "levin/comm/backends.h"

#include <algorithm>
#include <array>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/comm/gloo/gloo.h"
#include "levin/comm/hierarchical/backend.h"
#include "levin/comm/mpi/mpi.h"
#include "levin/comm/reach.h"
#include "levin/comm/roll_call.h"
#include "levin/comm/shm/backend.h"

namespace levin::comm {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

/// Returns each rank's word once all ranks have connected; the store holds the timeout.
std::vector<std::string> words_of_all(c10d::Store& store, const std::string& topic, int64_t rank,
                                      int64_t size, const std::string& word) {
  try {
    return call_roll(store, {.topic = topic, .rank = rank, .size = size}, word);
  } catch (const Absence& missing) {
    LEVIN_FAIL(
        "comm.connect",
        "rank {} of {} did not connect within {} s; check that it was started, and read its output",
        missing.ranks, size, std::chrono::duration<double>(store.getTimeout()).count());
  }
}

HostLayout layout_of(c10d::Store& store, int64_t rank, int64_t size) {
  return HostLayout::of(words_of_all(store, "host", rank, size, host_identity()));
}

struct Maker {
  std::string_view name;
  BackendPointer (*make)(const BackendPlan&);
};

BackendPointer make_shm(const BackendPlan& plan) {
  return make_shm_backend(plan.store, plan.rank, plan.size, plan.timeout);
}

BackendPointer make_gloo(const BackendPlan& plan) {
  return make_gloo_backend(plan.store, plan.rank, plan.size, plan.timeout, plan.own_address);
}

BackendPointer make_mpi(const BackendPlan& plan) {
  return make_mpi_backend(plan.rank, plan.size, plan.timeout, plan.global_ranks);
}

BackendPointer make_hierarchical(const BackendPlan& plan) {
  return make_hierarchical_backend(plan.store, plan.rank,
                                   layout_of(*plan.store, plan.rank, plan.size), plan.timeout,
                                   {.carrier = Carrier::kGloo, .own_address = plan.own_address});
}

BackendPointer make_hierarchical_mpi(const BackendPlan& plan) {
  return make_hierarchical_backend(plan.store, plan.rank,
                                   layout_of(*plan.store, plan.rank, plan.size), plan.timeout,
                                   {.carrier = Carrier::kMpi, .global_ranks = plan.global_ranks});
}

constexpr std::array<Maker, 5> kMakers = {{{"shm", make_shm},
                                           {"gloo", make_gloo},
                                           {"mpi", make_mpi},
                                           {"hierarchical", make_hierarchical},
                                           {"hierarchical-mpi", make_hierarchical_mpi}}};

std::vector<std::string> backend_names() {
  std::vector<std::string> names = {"auto"};
  for (const Maker& maker : kMakers) names.emplace_back(maker.name);
  return names;
}

[[noreturn]] void fail_unknown(const std::string& name) {
  const auto names = backend_names();
  const auto close = nearest(name, names);
  LEVIN_FAIL("comm.backend", "got '{}', wanted one of {}; {}", name, to_text(names),
             close ? fmt::format("did you mean '{}'?", *close) : "set --backend");
}

}  // namespace

void check_backend_name(const std::string& name) {
  const auto names = backend_names();
  if (std::ranges::find(names, name) == names.end()) fail_unknown(name);
}

std::string choose_backend(c10d::Store& store, int64_t rank, int64_t size,
                           const ProcessGroupOptions& options) {
  const auto num_hosts = std::ssize(layout_of(store, rank, size).hosts);
  LEVIN_CHECK(options.backend != "shm" || num_hosts == 1, "comm.backend",
              "got backend shm for ranks on {} hosts, wanted hierarchical, gloo or auto; set "
              "--backend",
              num_hosts);
  if (options.backend != "auto") return options.backend;
  if (num_hosts == 1) return "shm";
  return num_hosts == size ? "gloo" : "hierarchical";
}

// A host's own name need not resolve to an address that the others reach: on the master's host it
// is often a loopback, which the way to any other host is not.
std::string choose_address(c10d::Store& store, int64_t rank, int64_t size,
                           const std::string& master_address) {
  const bool is_file = master_address.starts_with("file://");
  const std::string own = is_file ? "" : address_towards(master_address);
  const auto addresses = words_of_all(store, "address", rank, size, own);
  if (!own.empty() && !is_loopback(own)) return own;
  for (const std::string& theirs : addresses) {
    if (!theirs.empty() && !is_loopback(theirs)) return address_towards(theirs);
  }
  return own;
}

BackendPointer make_backend(const std::string& name, const BackendPlan& plan) {
  for (const Maker& maker : kMakers) {
    if (maker.name == name) return maker.make(plan);
  }
  fail_unknown(name);
}

}  // namespace levin::comm
