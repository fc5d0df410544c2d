#include "levin/accelerator/compiled/graph_file.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/record/trace.h"

namespace levin::detail {
namespace {

constexpr int64_t kManyLosses = 1000;  ///< more batches than an accumulation window has

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_of_parameter(const graph::Update& update) {
  const at::Tensor& tensor = update.target->node().tensor();
  return !update.is_gradient && tensor.defined() && tensor.requires_grad();
}

}  // namespace

std::filesystem::path graph_file() { return variable("LEVIN_GRAPH_TO"); }

bool is_graph_without_memory() {
  return !graph_file().empty() && std::getenv("LEVIN_GRAPH_WITHOUT_MEMORY") != nullptr;
}

std::string graph_precision() {
  return graph_file().empty() ? "" : variable("LEVIN_GRAPH_PRECISION");
}

std::filesystem::path description_file() { return variable("LEVIN_PLAN_TO"); }

bool is_graph_for_xla() { return std::getenv("LEVIN_GRAPH_FOR_XLA") != nullptr; }

void keep_graph(const graph::Graph& graph, const std::function<void()>& describe) {
  const std::filesystem::path file = graph_file();
  if (file.empty() || std::ranges::none_of(graph.updates(), is_of_parameter)) return;
  graph::Graph kept = graph.clone();
  // Gradients of the step before, which the step drops.
  for (graph::Node* input : kept.find_nodes(graph::Opcode::kPlaceholder)) {
    if (input->output().users().empty()) kept.erase_node(*input);
  }
  graph::GraphModule(std::move(kept)).save(file, {.state = false});
  if (describe) describe();
  log::info("the graph of the training step is in {}; the run ends here", file.string());
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(EXIT_SUCCESS);  // in the middle of a step, whose results nobody wants
}

void check_recorded(bool is_recorded, int64_t num_losses) {
  if (is_recorded || num_losses < kManyLosses || graph_file().empty()) return;
  LEVIN_FAIL("accelerator.graph_to",
             "no step was recorded in {} batches of training; train with a Trainer, or step with "
             "an optimizer that Accelerator::prepare returned",
             num_losses);
}

void check_refusals(const std::vector<std::string>& refusals) {
  if (refusals.empty() || graph_file().empty()) return;
  LEVIN_FAIL("accelerator.graph_to", "the training step cannot be recorded: {}", refusals.front());
}

}  // namespace levin::detail
