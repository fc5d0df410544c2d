#pragma once
// Modes: train() and eval() change arguments of a node, into which torch.export has written the mode.
// Not for users.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "levin/interchange/run/step.h"

namespace levin::interchange {

/// The arguments of one node that its module's mode decides.
struct Modes {
  const torch::nn::Module* module = nullptr;  ///< nullptr: no mode changes this node
  std::optional<size_t> flag;                 ///< bool train, training, use_input_stats
  std::optional<size_t> rate;                 ///< dropout rate of attention: 0 in evaluation mode
  double training_rate = 0;
  bool skipped = false;  ///< batch norm's count, which evaluation mode leaves alone
  bool counts = false;   ///< batch norm that was exported in evaluation mode, without its count

  /// The arguments on the stack as the module's mode has them.
  void apply(torch::jit::Stack& stack) const;
  /// In training mode: one batch more.
  void count() const;
};

/// Notes the module's exported mode in the context, and what stands in the way of the other one.
Modes find_modes(const Node& node, const c10::OperatorHandle& op, StepContext& context);

}  // namespace levin::interchange
