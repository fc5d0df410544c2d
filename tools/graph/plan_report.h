#pragma once
// plan_report: what a training step costs on a device and what it holds in memory, as a record, as
// text and as JSON. What `levin plan` prints.
//
//   std::cout << to_text(plan_of(step.graph(), *graph::find_device("h100"), 5));

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "levin/graph/passes/passes.h"
#include "tools/graph/step_outline.h"

namespace levin::tools {

struct PhaseCost {
  int64_t num_operators = 0;  ///< without views, which cost nothing
  double flops = 0.0;
  double bytes = 0.0;
  double seconds = 0.0;
};

struct PlannedTensor {
  int64_t bytes = 0;
  std::string type;
  std::string kind;
  std::string name;    ///< of a state tensor or an input; else the operator
  std::string module;  ///< empty: of none
};

struct Plan {
  graph::DeviceDescription device;
  std::array<PhaseCost, 3> phases;  ///< by Phase
  PhaseCost total;
  int64_t num_parameters = 0;          ///< numbers in them
  std::array<int64_t, 5> memory = {};  ///< at the peak, by graph::MemoryUse
  int64_t peak_bytes = 0;
  std::string peak_operator;
  Role peak_role;
  std::vector<PlannedTensor> largest;  ///< of those alive at the peak
};

std::string_view name_of(graph::MemoryUse use);

/// Throws Error "graph.cost" for a graph whose types are not known.
Plan plan_of(const graph::Graph& graph, const graph::DeviceDescription& device, size_t num_largest);
std::string to_text(const Plan& plan);
/// A line for each of plan.largest.
std::string largest_text(const Plan& plan);
std::string to_json(const Plan& plan);

}  // namespace levin::tools
