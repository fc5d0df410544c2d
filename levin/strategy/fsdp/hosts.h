#pragma once
// Hosts: the ranks of a run by the hosts that they are on, each of which keeps one copy of the
// parameters for all of its ranks.
//
// Ranks are numbered anew: those of one place on their hosts one behind the other. Of a unit, which
// is cut in that order, a rank then fetches what the ranks of its place on other hosts have, which
// is one piece; together the ranks of a host fetch the whole, each a part of it.

#include <cstdint>
#include <optional>
#include <vector>

#include "levin/comm/process_group.h"

namespace levin::fsdp {

struct Hosts {
  comm::ProcessGroup all;     ///< in the new order
  comm::ProcessGroup local;   ///< of this host, by place
  comm::ProcessGroup across;  ///< of this place, by host

  int64_t num_hosts() const { return all.size() / local.size(); }
};

/// Whether all ranks can map one memory. All of them call it.
bool share_memory(comm::ProcessGroup& group);
/// None where ranks are on one host, hosts have different numbers of them, or their backend tells
/// hosts not apart. All ranks call it.
std::optional<Hosts> find_hosts(comm::ProcessGroup& group);

}  // namespace levin::fsdp
