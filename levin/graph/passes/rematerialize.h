#pragma once
// rematerialize: activation checkpointing by a budget of memory. Of what a recorded step keeps for
// its backward pass, some is thrown away and computed anew when it is needed.
//
//   const Rematerialization done = rematerialize(graph, 8'000'000'000);
//   fmt::print("{} operators run twice, {} FLOPs\n", done.num_operators, done.flops);

#include <cstdint>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

struct Rematerialization {
  int64_t peak_bytes_before = 0;
  int64_t peak_bytes = 0;     ///< as memory_of has it, at most the budget
  int64_t num_operators = 0;  ///< that the graph has more than before, without views
  double flops = 0.0;         ///< of those; a multiplication and an addition are two
};

/// Brings memory_of(graph).peak_bytes under the budget with little arithmetic: again and again, of
/// what is alive at the peak but not read for a while, goes what costs the fewest FLOPs to have
/// back for each byte (Kirisame et al., "Dynamic Tensor Rematerialization", 2021, with the peak
/// known ahead); what has it computed anew from what is gone as well is a segment of Chen et al.,
/// "Training Deep Nets with Sublinear Memory Cost" (2016). In the end, what the budget has room for
/// stays after all. All results are what they were, bit for bit: draws of random numbers, operators
/// that write and what the host reads run once; a batch norm that runs again leaves its statistics
/// alone. eliminate_common_subexpressions would undo it: run that before.
///
/// Throws Error "graph.budget" with the least peak that it found where the budget is below that,
/// and leaves the graph as it was; "graph.cost" for a graph whose types are not known.
LEVIN_API Rematerialization rematerialize(Graph& graph, int64_t budget_bytes);

}  // namespace levin::graph
