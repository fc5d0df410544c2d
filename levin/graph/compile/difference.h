#pragma once
// first_difference: whether two recordings of one function are the same computation.

#include <optional>
#include <string>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

struct Difference {
  std::string text;      ///< in words, for a log
  bool is_read = false;  ///< the same operators, up to one whose value the host read differs
};

/// Returns the first difference between the second graph and the first: another operator, constant,
/// operand, type, state tensor, or value that the host read. Nothing for equal graphs. State
/// tensors are equal if they lie in the same memory, constants among them if they have the same
/// contents.
LEVIN_API std::optional<Difference> first_difference(const Graph& before, const Graph& now);

}  // namespace levin::graph
