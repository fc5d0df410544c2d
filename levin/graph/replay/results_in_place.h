#pragma once
// results_in_place: results that are only copied into a part of new memory, as a gradient into the
// buffer of its bucket. A replay computes such a result where the copy would put it, and leaves out
// the copy and the memory of the result.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/interpret/in_place_impl.h"

namespace levin::graph {

/// The place of a result.
struct ResultPlace {
  const Node* copy = nullptr;    ///< the copy_ that puts it there
  const Value* whole = nullptr;  ///< the memory, without contents until then
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> strides = {};
  int64_t offset = 0;  ///< first element
};

/// in_place: the writes through views that the run does where the views lie. On CPUs alone. A place
/// is a multiple of 64 bytes from the start of its memory, as kernels may compute other bits at others.
std::unordered_map<const Value*, ResultPlace> results_in_place(const Graph& graph,
                                                               const InPlaceWrites& in_place);

}  // namespace levin::graph
