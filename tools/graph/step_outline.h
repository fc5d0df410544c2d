#pragma once
// step_outline: what each operator of a training step is for (forward, backward, update) and which
// module it belongs to, read from the graph alone.
//
//   const StepOutline outline = outline_of(step.graph());
//   outline.roles.at(&node).module;  // "net.0"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/passes/passes.h"

namespace levin::tools {

/// Forward: what the loss, the first output, depends on. Backward: what the gradients do, as the
/// backward pass leaves them. Update: what comes after the last of them; so clipping is part of it.
enum class Phase { kForward, kBackward, kUpdate };
std::string_view name_of(Phase phase);

struct Role {
  Phase phase = Phase::kForward;
  /// The module whose parameter or state the operator reads or whose gradient it makes; of several
  /// what they have in common. Else where its operands came from. Empty: the whole net.
  std::string module;
};

struct StepOutline {
  std::unordered_map<const graph::Node*, Role> roles;          ///< of the operators
  std::unordered_set<const graph::Node*> parameters;           ///< what gets a gradient
  std::unordered_set<const graph::Value*> gradients;           ///< before clipping and the update
  std::unordered_map<const graph::Node*, std::string> owners;  ///< modules of state, where known
};

/// An input by which the gradient of the step before comes in, "gradient of net.0.weight".
bool is_old_gradient(const graph::Node& node);

StepOutline outline_of(const graph::Graph& graph);

/// Numbers in all parameters.
int64_t num_parameters(const StepOutline& outline);

/// A parameter is what gets a gradient, bound or not; an input may be a gradient.
graph::MemoryUse use_of(const graph::LiveValue& live, const StepOutline& outline);

}  // namespace levin::tools
