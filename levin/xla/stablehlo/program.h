#pragma once
// Program: a graph as StableHLO text, and what a run of it takes and gives.
//
//   const Program program = lower(graph);
//   executable = client.compile(program.text, ...);

#include <functional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::xla {

/// A number that each run is given anew.
struct RuntimeNumber {
  double value = 0.0;                   ///< the number, if there is no tensor
  const graph::Node* tensor = nullptr;  ///< a CPU tensor without dimensions: a floating input
  /// The node and argument that `value` comes from, if the program is the same for any value.
  const graph::Node* node = nullptr;
  size_t argument = 0;
};

/// One output of the program: an output of the graph, or the new contents of one of its inputs.
struct ProgramOutput {
  const graph::Value* value = nullptr;
  const graph::Node* updates = nullptr;  ///< nullptr: an output of the graph
  size_t index = 0;                      ///< index of the graph's output
};

/// Arguments of the program: one for each of `inputs`, in the order of their first use (unused ones
/// are left out), then f32[numbers.size()] and f64[wide_numbers.size()] if there are any, then
/// ui32[2] if it draws random numbers.
struct Program {
  std::string text;
  std::vector<const graph::Node*> inputs;
  std::vector<RuntimeNumber> numbers;
  std::vector<RuntimeNumber> wide_numbers;
  bool draws_random_numbers = false;
  int64_t num_replicas = 1;   ///< LowerOptions::num_replicas
  int64_t num_operators = 0;  ///< number of ATen's operators
  std::vector<ProgramOutput> outputs;
};

struct LowerOptions {
  std::string name = "step";
  /// Copies of the program that run at once, each with inputs of its own: levin::all_reduce_ sums
  /// over all of them, whatever its group.
  int64_t num_replicas = 1;
  /// Devices that the program is partitioned over, and how each input lies on them: the dimension
  /// that is split, -1 for a copy on each. Results are a copy on each.
  int64_t num_partitions = 1;
  std::function<int64_t(const graph::Node&)> split_dim = nullptr;
  /// Returns whether an updated input may give its memory to its new contents.
  std::function<bool(const graph::Node&)> may_donate = nullptr;
};

/// The graph may have been recorded on the device xla or on the CPU.
/// Throws Error "xla.lowering" that names an operator without lowering and "xla.dtype".
LEVIN_API Program lower(const graph::Graph& graph, const LowerOptions& options = {});

}  // namespace levin::xla
