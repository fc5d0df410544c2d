#pragma once
// Whether the types that a text gives the values of its graph are those that its operators give: a
// replay hands operators memory of these sizes.

#include "levin/graph/graph.h"

namespace levin::graph {

/// Interprets the graph once on zeros, and leaves state and random generators as they are. Throws
/// Error "graph.replay", which names the operator.
void check_claimed_types(const Graph& graph);

}  // namespace levin::graph
