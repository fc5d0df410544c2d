#pragma once
// exchange_cost: what a collective of a graph costs, by latency and bandwidth of its group's backend.

#include <optional>

#include "levin/graph/graph.h"

namespace levin::graph {

struct ExchangeCost {
  double flops = 0.0;       ///< of the reduction
  double sent_bytes = 0.0;  ///< by each rank
  double seconds = 0.0;
};

/// Nothing for what is no collective. A start costs what the collective costs, a wait nothing. A
/// group that this process does not have counts as one over gloo, of as many ranks as the collective
/// names parts.
std::optional<ExchangeCost> exchange_cost(const Node& node);

}  // namespace levin::graph
