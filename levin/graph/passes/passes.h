#pragma once
// Passes: what a graph may leave out without giving anything else. Each changes the graph in place
// and says how many operators went.
//
//   fold_constants(graph);
//   eliminate_common_subexpressions(graph);
//   graph.eliminate_dead_code();

#include <cstddef>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

/// Of operators that compute the same from the same, the first stays. Draws of random numbers and
/// operators that write, or that the host reads, are never the same.
LEVIN_API size_t eliminate_common_subexpressions(Graph& graph);

/// Operators without values among their arguments (full, arange) are run once; what they give
/// becomes state of the name _constant0 and so on.
LEVIN_API size_t fold_constants(Graph& graph);

/// What its outputs do not depend on goes, whatever it would do: updates, draws, reads of the host.
LEVIN_API size_t keep_what_outputs_need(Graph& graph);

}  // namespace levin::graph
