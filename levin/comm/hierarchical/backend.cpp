#include "levin/comm/hierarchical/backend.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "levin/comm/collectives/queued_backend.h"
#include "levin/comm/gloo/network.h"
#include "levin/comm/hierarchical/collectives.h"
#include "levin/comm/messages/collectives.h"
#include "levin/comm/mpi/mpi.h"
#include "levin/comm/shm/backend.h"

namespace levin::comm {
namespace {

Across over_gloo(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                 const std::string& own_address) {
  const auto network = std::make_shared<GlooNetwork>(store, rank, own_address);
  const auto connect = [network](const RanksAcross& ranks, std::chrono::milliseconds timeout) {
    auto transport = network->connect(
        {.members = ranks.members, .name = ranks.name, .look = ranks.look}, timeout);
    return make_message_collectives(std::move(transport), Carrier::kGloo);
  };
  return {.connect = connect, .connects_pairs = true};
}

// Groups have communicators of their own, whose messages do not meet. MPI makes them one at a time,
// so there is no separate one for two ranks that others do not wait for.
Across over_mpi(int64_t rank, const std::vector<int64_t>& global_ranks) {
  const auto connect = [=](const RanksAcross& across, std::chrono::milliseconds timeout) {
    std::vector<int64_t> ranks = across.members;
    for (int64_t& member : ranks) {
      if (!global_ranks.empty()) member = global_ranks[static_cast<size_t>(member)];
    }
    const int64_t own = std::ranges::find(across.members, rank) - across.members.begin();
    const auto size = std::ssize(across.members);
    return make_message_collectives(connect_by_mpi(own, size, timeout, ranks), Carrier::kMpi);
  };
  return {.connect = connect};
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_hierarchical_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, const HostLayout& layout,
    std::chrono::milliseconds timeout, const BetweenHosts& between) {
  const auto size = std::ssize(layout.host_of);
  const int64_t host = layout.host_of[static_cast<size_t>(rank)];
  const int64_t num_local = std::ssize(layout.hosts[static_cast<size_t>(host)]);
  std::unique_ptr<shm::Group> local;
  const bool is_one_host = layout.hosts.size() == 1;
  if (num_local > 1 || is_one_host) {
    local =
        make_shm_group(c10::make_intrusive<c10d::PrefixStore>(fmt::format("host{}", host), store),
                       layout.place_of[static_cast<size_t>(rank)], num_local, timeout);
  }
  Across across = between.carrier == Carrier::kMpi ? over_mpi(rank, between.global_ranks)
                                                   : over_gloo(store, rank, between.own_address);
  shm::Group* memory = local.get();
  auto collectives = std::make_unique<HierarchicalCollectives>(layout, rank, std::move(local),
                                                               std::move(across), timeout);
  if (memory == nullptr) {
    return c10::make_intrusive<QueuedBackend>("hierarchical", rank, size, std::move(collectives));
  }
  return c10::make_intrusive<SharedMemoryBackend>("hierarchical", rank, size,
                                                  std::move(collectives), *memory);
}

}  // namespace levin::comm
