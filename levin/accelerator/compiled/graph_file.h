#pragma once
// The file to which a program writes its training step instead of training on, under `levin plan`
// and `levin graph`.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "levin/graph/graph.h"

namespace levin::detail {

/// LEVIN_GRAPH_TO; empty in a run that is to train.
std::filesystem::path graph_file();

/// Returns whether the graph is compiled for XLA: it must have no operators that only oneDNN has.
bool is_graph_for_xla();

/// Returns whether the step is recorded of a model without memory (LEVIN_GRAPH_WITHOUT_MEMORY), so
/// that nothing is computed.
bool is_graph_without_memory();
/// LEVIN_GRAPH_PRECISION: the precision of the recorded step in place of the program's; empty for
/// that.
std::string graph_precision();
/// LEVIN_PLAN_TO: the file that describes the model of the graph for a forecast; empty for none.
std::filesystem::path description_file();

/// Writes the graph there and ends the program, at the first step that updates parameters: a batch
/// inside an accumulation window does not. Without such a file it does nothing.
/// Before it ends it calls `describe`.
void keep_graph(const graph::Graph& graph, const std::function<void()>& describe = {});

/// For a loop that trains on without a step that could be recorded. Throws Error
/// "accelerator.graph_to".
void check_recorded(bool is_recorded, int64_t num_losses);
/// For a step that cannot be. Throws Error "accelerator.graph_to".
void check_refusals(const std::vector<std::string>& refusals);

}  // namespace levin::detail
