#pragma once
// first_difference: whether two recordings of one function are the same computation.

#include <optional>
#include <string>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

/// Where the second graph first does something else than the first: another operator, constant,
/// operand, type or state tensor. In words for a log; nothing for equal graphs. State tensors are
/// the same where they lie in the same memory, constants among them where they have the same
/// contents.
LEVIN_API std::optional<std::string> first_difference(const Graph& before, const Graph& now);

}  // namespace levin::graph
