#pragma once
// first_difference: whether two recordings of one function are the same computation.

#include <optional>
#include <string>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

struct Difference {
  std::string text;      ///< in words, for a log
  bool is_read = false;  ///< the same operators up to one of which the host read another value
};

/// Where the second graph first does something else than the first: another operator, constant,
/// operand, type, state tensor, or value that the host read. Nothing for equal graphs. State
/// tensors are the same where they lie in the same memory, constants among them where they have the
/// same contents.
LEVIN_API std::optional<Difference> first_difference(const Graph& before, const Graph& now);

}  // namespace levin::graph
