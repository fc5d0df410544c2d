#include "levin/comm/hierarchical/backend.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "levin/comm/collectives/queued_backend.h"
#include "levin/comm/gloo/gloo.h"
#include "levin/comm/gloo/transport.h"
#include "levin/comm/hierarchical/collectives.h"
#include "levin/comm/messages/collectives.h"
#include "levin/comm/mpi/mpi.h"
#include "levin/comm/shm/backend.h"

namespace levin::comm {
namespace {

constexpr int kTagsOfAGroup = 4;

HierarchicalCollectives::Across over_gloo(c10::intrusive_ptr<c10d::Backend> connection,
                                          std::chrono::milliseconds timeout) {
  return [connection = std::move(connection), timeout](const std::vector<int64_t>& members,
                                                       int64_t number) {
    GlooPart part = {.members = members, .first_tag = static_cast<int>(number) * kTagsOfAGroup};
    return std::make_unique<MessageCollectives>(
        std::make_unique<GlooTransport>(connection, std::move(part), timeout),
        algorithms_of(Carrier::kGloo, std::ssize(members)));
  };
}

// Groups have communicators of their own, whose messages do not meet.
HierarchicalCollectives::Across over_mpi(int64_t rank, std::vector<int64_t> global_ranks,
                                         std::chrono::milliseconds timeout) {
  return [=](const std::vector<int64_t>& members, int64_t) {
    std::vector<int64_t> ranks = members;
    for (int64_t& member : ranks) {
      if (!global_ranks.empty()) member = global_ranks[static_cast<size_t>(member)];
    }
    const int64_t own = std::ranges::find(members, rank) - members.begin();
    const auto size = std::ssize(members);
    return std::make_unique<MessageCollectives>(connect_by_mpi(own, size, timeout, ranks),
                                                algorithms_of(Carrier::kMpi, size));
  };
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
  HierarchicalCollectives::Across across;
  if (!is_one_host) {
    across =
        between.carrier == Carrier::kMpi
            ? over_mpi(rank, between.global_ranks, timeout)
            : over_gloo(connect_by_gloo(store, rank, size, timeout, between.own_address), timeout);
  }
  shm::Group* memory = local.get();
  auto collectives =
      std::make_unique<HierarchicalCollectives>(layout, rank, std::move(local), std::move(across));
  if (memory == nullptr) {
    return c10::make_intrusive<QueuedBackend>("hierarchical", rank, size, std::move(collectives));
  }
  return c10::make_intrusive<SharedMemoryBackend>("hierarchical", rank, size,
                                                  std::move(collectives), *memory);
}

}  // namespace levin::comm
