#include "levin/strategy/fsdp/hosts.h"

#include <algorithm>
#include <string>

#include "levin/base/check.h"
#include "levin/comm/hierarchical/layout.h"

namespace levin::fsdp {
namespace {

comm::HostLayout layout_of(comm::ProcessGroup& group) {
  State own;
  own.set("host", comm::host_identity());
  std::vector<std::string> identities;
  for (const State& theirs : group.all_gather(own)) identities.push_back(theirs.text("host"));
  return comm::HostLayout::of(identities);
}

bool tells_hosts_apart(const comm::ProcessGroup& group) {
  return group.backend().starts_with("hierarchical");
}

}  // namespace

bool share_memory(comm::ProcessGroup& group) {
  if (group.size() == 1 || group.backend() == "shm") return true;
  return tells_hosts_apart(group) && layout_of(group).hosts.size() == 1;
}

int64_t num_hosts(comm::ProcessGroup& group) {
  if (group.size() == 1 || group.backend() == "shm") return 1;
  const comm::HostLayout layout = layout_of(group);
  const auto count = std::ssize(layout.hosts);
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    LEVIN_CHECK(
        layout.is_even() &&
            layout.host_of[static_cast<size_t>(rank)] == rank * count / group.size(),
        "strategy.fsdp.mesh",
        "got --mesh hosts on {} hosts with different numbers of ranks, or whose ranks do not "
        "follow each other; start as many ranks on each host, or set --mesh replicate=...",
        count);
  }
  return count;
}

std::optional<Hosts> find_hosts(comm::ProcessGroup& group) {
  if (group.size() == 1 || !tells_hosts_apart(group)) return std::nullopt;
  const comm::HostLayout layout = layout_of(group);
  if (layout.hosts.size() == 1 || !layout.is_even()) return std::nullopt;
  std::vector<int64_t> order;
  const auto num_places = std::ssize(layout.hosts.front());
  for (int64_t place = 0; place < num_places; ++place) {
    for (const int64_t rank : layout.ranks_at(place)) order.push_back(rank);
  }
  Hosts hosts{.all = group.subgroup(order), .local = {}, .across = {}};
  const auto own = static_cast<size_t>(group.rank());
  // All ranks make each of the groups.
  for (size_t host = 0; host < layout.hosts.size(); ++host) {
    comm::ProcessGroup part = group.subgroup(layout.hosts[host]);
    if (layout.host_of[own] == static_cast<int64_t>(host)) hosts.local = part;
  }
  for (int64_t place = 0; place < num_places; ++place) {
    comm::ProcessGroup part = group.subgroup(layout.ranks_at(place));
    if (layout.place_of[own] == place) hosts.across = part;
  }
  return hosts;
}

}  // namespace levin::fsdp
