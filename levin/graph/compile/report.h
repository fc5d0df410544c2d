#pragma once
// CompiledReport: how often a compiled function was replayed, and why not. Trainer::compile_report() and
// CompiledFunction::report() give it.

#include <cstdint>
#include <string>
#include <vector>

namespace levin::graph {

/// The parts of a replay.
struct ReplayReport {
  int64_t num_operators = 0;   ///< run each time
  int64_t num_allocating = 0;  ///< of them, those that allocate their results
  int64_t num_captured = 0;    ///< of them, those that a device runs in graphs of its own
  int64_t num_matmuls = 0;     ///< of them, products by faster kernels than ATen calls
  int64_t num_copies = 0;      ///< of them, copies of what an operator writes and others still read
  int64_t num_views = 0;       ///< made once
  int64_t num_constants = 0;   ///< operators that always give the same, run once
  int64_t arena_bytes = 0;     ///< memory of all values
  int64_t needed_bytes = 0;    ///< the most of them that are needed at one time
};

/// The calls of a compiled function so far.
struct CompiledReport {
  int64_t eager = 0;
  int64_t recorded = 0;
  int64_t replayed = 0;
  int64_t checked = 0;  ///< called in a replay's place, and equal to the recording
  std::vector<ReplayReport> replays = {};  ///< of each recording that is replayed
  std::vector<std::string> refusals = {};  ///< why the function runs as it is
};

}  // namespace levin::graph
