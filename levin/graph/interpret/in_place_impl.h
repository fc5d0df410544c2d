#pragma once
// in_place_writes: the writes through views that a run may do where the views lie. A recording says
// that a part was written and that a new whole is the old one with that part (slice_scatter,
// as_strided_scatter); in eager code both are one piece of memory.
//
//   const InPlaceWrites in_place = in_place_writes(graph, may_write);
//   if (in_place.scatters.contains(&node)) ...  // its result lies where its first argument lies

#include <functional>
#include <unordered_set>

#include "levin/graph/graph.h"

namespace levin::graph {

struct InPlaceWrites {
  std::unordered_set<const Node*> scatters;  ///< nothing is to be done for these
  std::unordered_set<const Value*> written;  ///< operators write these where they lie
  std::unordered_set<const Value*> wholes;   ///< values in whose memory they lie
};

/// may_write: whether a run may write to the memory of a value that is no view. Values in one memory
/// are all written in place, or none of them is: only if each operator then reads what it reads in a
/// run that copies.
InPlaceWrites in_place_writes(const Graph& graph,
                              const std::function<bool(const Value& whole)>& may_write);

}  // namespace levin::graph
