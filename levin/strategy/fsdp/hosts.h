#pragma once
// Hosts: the ranks of a run by host. Each host keeps one copy of the parameters for all of its
// ranks.
//
// Ranks are renumbered: ranks with the same place on their hosts come one behind the other. A unit
// is cut in that order. So a rank fetches one piece: the rows of the ranks with its place on other
// hosts. Together the ranks of a host fetch the full unit.

#include <cstdint>
#include <optional>
#include <vector>

#include "levin/comm/process_group.h"

namespace levin::fsdp {

struct Hosts {
  comm::ProcessGroup all;     ///< in the new order
  comm::ProcessGroup local;   ///< the ranks of this host, by place
  comm::ProcessGroup across;  ///< the ranks of this place, by host

  int64_t num_hosts() const { return all.size() / local.size(); }
};

/// Returns whether all ranks can map one memory. All of them call it.
bool share_memory(comm::ProcessGroup& group);
/// Returns the number of hosts. All ranks call it. Throws Error "strategy.fsdp.mesh" if hosts have
/// different numbers of ranks, or the ranks of a host do not follow each other.
int64_t num_hosts(comm::ProcessGroup& group);
/// Returns nothing if all ranks are on one host, hosts have different numbers of ranks, or the
/// backend does not tell hosts apart. All ranks call it.
std::optional<Hosts> find_hosts(comm::ProcessGroup& group);

}  // namespace levin::fsdp
