#pragma once
// Across: how the ranks of one host reach those of others, for HierarchicalCollectives.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/comm/collectives/collectives.h"

namespace levin::comm {

/// Ranks over hosts, this one among them, that are to talk.
struct RanksAcross {
  std::vector<int64_t> members;
  std::string name;                 ///< groups of different names do not meet
  std::function<void()> look = {};  ///< called while others are waited for; ends that by throwing
};

struct Across {
  /// All of the members call it, and then have the collectives of these ranks, which count from 0.
  std::function<std::unique_ptr<Collectives>(const RanksAcross&, std::chrono::milliseconds timeout)>
      connect;
  /// Two ranks may connect at any time, whatever else they do. Else messages go by the group of all
  /// ranks, which is made at the start.
  bool connects_pairs = false;
};

}  // namespace levin::comm
