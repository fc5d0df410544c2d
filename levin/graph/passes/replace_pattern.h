#pragma once
// replace_pattern: every occurrence of one small graph in a large one becomes another.
//
//   const auto pattern = levin::trace([](const at::Tensor& x) { return x * torch::sigmoid(x); },
//   {x}); const auto silu = levin::trace([](const at::Tensor& x) { return torch::silu(x); }, {x});
//   replace_pattern(module.graph(), pattern.graph(), silu.graph());

#include <cstddef>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

/// The pattern's inputs stand for any values, the same one each time; its operators must have the
/// same constants, and nobody else may use the values between them. Occurrences do not overlap: the
/// first one counts. The replacement takes inputs and gives outputs as the pattern does; of what it
/// gives, the types are not known until propagate_types, but for the outputs. Returns how many were
/// replaced.
///
/// Throws Error "graph.pattern" for a pattern without operators, with state, updates or random
/// numbers, and where the two differ in inputs or outputs.
LEVIN_API size_t replace_pattern(Graph& graph, const Graph& pattern, const Graph& replacement);

}  // namespace levin::graph
