#include "tools/graph/program_graph.h"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "levin/base/check.h"
#include "levin/files/read_file.h"
#include "tools/program_run.h"

namespace levin::tools {
namespace {

/// In a group of batches the gradients so far are inputs, "gradient of net.0.weight", which the
/// step adds to: what it leaves there is a gradient of the parameter like any other.
void name_gradients(graph::Graph& graph) {
  constexpr std::string_view kPrefix = "gradient of ";
  std::unordered_map<std::string_view, graph::Value*> state;
  for (const graph::Node* node : graph.find_nodes(graph::Opcode::kGetAttr)) {
    state[node->name()] = &node->output();
  }
  std::vector<graph::Update> updates = graph.updates();
  for (graph::Update& update : updates) {
    const std::string_view name = update.target->node().name();
    if (update.is_gradient || !name.starts_with(kPrefix)) continue;
    const auto parameter = state.find(name.substr(kPrefix.size()));
    if (parameter == state.end()) continue;
    update = {.target = parameter->second, .value = update.value, .is_gradient = true};
  }
  graph.set_updates(updates);
}

graph::GraphModule load(const std::filesystem::path& file) {
  graph::GraphModule step = graph::GraphModule::load(file);
  name_gradients(step.graph());
  return step;
}

void check_written(const std::filesystem::path& file, const std::vector<std::string>& command) {
  std::error_code error;
  LEVIN_CHECK(std::filesystem::exists(file, error), "tools.program",
              "'{}' ended and wrote no graph, because it did not make two steps with a Trainer or "
              "with an optimizer from Accelerator::prepare; let the program make its steps with "
              "one of them, or save a graph::GraphModule and give its .safetensors file",
              command[0]);
}

bool is_graph_file(const std::vector<std::string>& command) {
  return command.size() == 1 && command[0].ends_with(".safetensors");
}

}  // namespace

graph::GraphModule program_graph(const std::vector<std::string>& command, bool for_xla) {
  LEVIN_CHECK(!command.empty(), "tools.program",
              "got no program, wanted a program and its arguments, or a graph's .safetensors file");
  if (is_graph_file(command)) return load(command[0]);
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "step.safetensors";
  Variables variables = {{"LEVIN_GRAPH_TO", file.string()},
                         {"LEVIN_LOGS_TO", (folder.path() / "logs").string()}};
  if (for_xla) variables.emplace_back("LEVIN_GRAPH_FOR_XLA", "1");
  run_program(command, variables, "its graph");
  check_written(file, command);
  return load(file);
}

PlannedProgram planned_program(const std::vector<std::string>& command,
                               const std::string& precision) {
  LEVIN_CHECK(!command.empty() && !is_graph_file(command), "tools.program",
              "got no program, wanted a program and its arguments: a forecast needs the model's "
              "units, which a graph's file does not hold");
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "step.safetensors";
  const std::filesystem::path description = folder.path() / "model.json";
  Variables variables = {{"LEVIN_GRAPH_TO", file.string()},
                         {"LEVIN_GRAPH_WITHOUT_MEMORY", "1"},
                         {"LEVIN_PLAN_TO", description.string()},
                         {"LEVIN_LOGS_TO", (folder.path() / "logs").string()}};
  if (!precision.empty()) variables.emplace_back("LEVIN_GRAPH_PRECISION", precision);
  run_program(command, variables, "its graph");
  check_written(file, command);
  return {load(file), forecast::description_of(files::read_file(description))};
}

}  // namespace levin::tools
