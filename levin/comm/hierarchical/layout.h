#pragma once
// HostLayout: which ranks of a group share a host.

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::comm {

/// Processes of equal words share a kernel, its unix sockets and its memory.
std::string host_identity();

struct LEVIN_API HostLayout {
  std::vector<std::vector<int64_t>> hosts;  ///< ranks of each, in the order of their first ranks
  std::vector<int64_t> host_of = {};        ///< by rank
  std::vector<int64_t> place_of = {};       ///< by rank, among those of its host

  /// identities[i] is rank i's.
  static HostLayout of(const std::vector<std::string>& identities);
  /// Returns whether each host has the same number of ranks.
  bool is_even() const;
  /// Returns the rank at that place of each host. For an even layout.
  std::vector<int64_t> ranks_at(int64_t place) const;
};

}  // namespace levin::comm
