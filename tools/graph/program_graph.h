#pragma once
// program_graph: the graph of a program's training step, which the program itself writes to the
// file that LEVIN_GRAPH_TO names. What `levin plan` and `levin graph` look at.
//
//   const graph::GraphModule step = program_graph({"./train", "--layers", "12"});

#include <string>
#include <vector>

#include "levin/graph/record/trace.h"
#include "levin/strategy/forecast/description.h"

namespace levin::tools {

/// A single word that ends in .safetensors is a file that holds the graph; anything else is a
/// command that is run, with what it prints on the error stream. Throws Error "tools.program" when
/// it cannot be started, fails or writes no graph, and what graph::GraphModule::load throws.
/// for_xla: without operators that only oneDNN has.
/// The step is recorded with memory, and run.
graph::GraphModule program_graph(const std::vector<std::string>& command, bool for_xla = false);

/// A step of a model without memory, and what a forecast needs beside it.
struct PlannedProgram {
  graph::GraphModule step;
  forecast::Description description;
};

/// Runs a program until it has recorded its step without memory: nothing is computed. precision: of
/// the step; empty for the program's own. Throws Error "tools.program" as program_graph.
PlannedProgram planned_program(const std::vector<std::string>& command,
                               const std::string& precision);

}  // namespace levin::tools
