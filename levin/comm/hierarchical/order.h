#pragma once
// The order of hosts: parts that lie in rank order, and host by host, and how to come from one to
// the other.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "levin/comm/collectives/collectives.h"
#include "levin/comm/hierarchical/layout.h"

namespace levin::comm {

/// Returns the counts of these ranks, in their order.
std::vector<int64_t> counts_of(std::span<const int64_t> ranks, Counts counts);
/// Returns the sum of the counts of each host's ranks.
std::vector<int64_t> counts_of_hosts(const HostLayout& layout, Counts counts);

/// Returns whether parts in rank order are already in the order of these ranks.
bool is_rank_order(std::span<const int64_t> ranks);

/// Returns the parts of data, which lie in rank order, in the order of these ranks: data itself if
/// that is the same, else a copy in memory from allocate.
Elements in_order_of(std::span<const int64_t> ranks, Elements data, Counts counts,
                     const std::function<Elements(int64_t count)>& allocate);
/// The way back.
void put_in_rank_order(std::span<const int64_t> ranks, Elements ordered, Elements data,
                       Counts counts);

}  // namespace levin::comm
