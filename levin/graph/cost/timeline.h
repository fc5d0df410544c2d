#pragma once
// Timeline: which memory of a recorded step lives from which operator to which. memory_of adds it
// up; a forecast counts some of it otherwise, as a strategy keeps it elsewhere.
// Not for users.
//
//   const graph::Timeline timeline = graph::timeline_of(step.graph());
//   timeline.blocks[timeline.block_of.at(&value)].last;   // the operator that reads it last

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

struct Timeline {
  struct Block {
    int64_t bytes = 0;
    size_t first = 0;  ///< operator that makes it, by its place among the nodes
    size_t last =
        std::numeric_limits<size_t>::max();  ///< operator that needs it last; else it stays
    bool is_owned = false;                   ///< an input or a state tensor: there before and after
  };

  std::vector<const Node*> nodes;
  std::vector<Block> blocks;
  std::unordered_map<const Value*, size_t> block_of;  ///< of values that are tensors
};

/// Throws Error "graph.cost" for a graph whose types are not known.
LEVIN_API Timeline timeline_of(const Graph& graph);

}  // namespace levin::graph
