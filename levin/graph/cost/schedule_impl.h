#pragma once
// A graph by numbers, the order in which its nodes run, some of them once more, and the memory that
// is alive while they do. The one account of it: memory_of tells it, rematerialize changes it.
//
//   const std::vector<IndexedNode> nodes = index_nodes(graph);
//   const Schedule schedule = schedule_of(nodes, Cuts(nodes.size()));
//   const int64_t peak = profile_of(nodes, schedule).peak_bytes;

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/interpret/liveness_impl.h"

namespace levin::graph {

struct IndexedNode {
  /// A value among its arguments.
  struct Read {
    size_t node = 0;  ///< the node that gives the value
    size_t output = 0;
    bool is_written = false;
    bool is_in_place = false;  ///< written where it lies, whoever else reads there
  };

  const Node* node = nullptr;
  size_t root = 0;  ///< the node in whose memory its outputs lie: itself, but for views
  bool is_view = false;
  bool is_read = false;
  bool is_owned = false;         ///< an input or a state tensor: there before and after
  bool is_recomputable = false;  ///< gives the same bits whenever it runs
  bool leaves_state = false;     ///< writes nothing when it runs again, and gives its results alone
  std::vector<Read> reads;       ///< in the order of the arguments, without the random state
  std::vector<int64_t> bytes;    ///< by output; below 0 for what is no tensor
  size_t num_results = 0;  ///< outputs that are results; the others are tensors that it has written

  /// Returns whether that read or output is part of the node when it runs again.
  bool reads_again(const Read& read) const { return !leaves_state || !read.is_written; }
  bool gives_again(size_t output) const { return !leaves_state || output < num_results; }
};

struct IndexOptions {
  bool in_place = true;        ///< writes through views are done where the views lie
  bool gathers_again = false;  ///< all-gathers may run again
};

std::vector<IndexedNode> index_nodes(const Graph& graph, const IndexOptions& options = {});

/// By node, in ascending order: the times after which its outputs are dropped and recomputed for
/// later readers. A time is the number of a node in the graph.
using Cuts = std::vector<std::vector<size_t>>;

/// A node that runs, for the first time or again.
struct Step {
  size_t node = 0;
  size_t time = 0;         ///< before or with which node of the graph it runs
  size_t generation = 0;   ///< number of its root's cuts before it
  size_t root = 0;         ///< the step in whose memory its outputs lie
  size_t first_value = 0;  ///< its outputs have numbers from there on
  size_t first_read = 0;   ///< in Schedule::reads, up to the next step's
  bool is_again = false;
  bool is_dropped = false;  ///< not run: only steps that run again are read
};

struct Schedule {
  std::vector<Step> steps;
  std::vector<size_t> reads;     ///< values
  std::vector<size_t> num_uses;  ///< by value
  std::vector<size_t> makers;    ///< by value: the step that gives it

  size_t end_of_reads(size_t step) const {
    return step + 1 < steps.size() ? steps[step + 1].first_read : reads.size();
  }
};

/// A value that was dropped is recomputed right before its first reader, from values that exist or
/// are recomputed for it.
Schedule schedule_of(const std::vector<IndexedNode>& nodes, const Cuts& cuts);

/// Memory of a step's own, or what is there from the start.
struct Block {
  size_t step = 0;   ///< the step that made it
  size_t value = 0;  ///< its first
  int64_t bytes = 0;
  bool is_owned = false;                             ///< an input or a state tensor
  size_t last = std::numeric_limits<size_t>::max();  ///< step that needs it; that one stays
};

struct Profile {
  std::vector<int64_t> bytes;  ///< alive with each step
  int64_t peak_bytes = 0;
  size_t peak_step = 0;
  std::vector<Block> blocks;
  std::vector<Live> values;  ///< the memory of each is the number of its block
};

/// Stops at the first step with more bytes than the limit, which is the peak then.
Profile profile_of(const std::vector<IndexedNode>& nodes, const Schedule& schedule,
                   int64_t limit_bytes = std::numeric_limits<int64_t>::max());

}  // namespace levin::graph
