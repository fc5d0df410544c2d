#pragma once
// Step: one node of a program, ready to run. Steps are made once, when a program is loaded, and run in each
// forward pass through LibTorch's dispatcher, above autograd.
//
//   const Steps steps = make_steps(program.body, context);
//   steps.run(frame);

#include <ATen/core/ivalue.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "levin/interchange/program/program.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::interchange {

/// The values of one call.
struct Frame {
  std::vector<c10::IValue> values;  ///< by slot
  c10::Device device = at::kCPU;    ///< in the place of the one that the program was exported on
};

/// Steps are made with it, and leave in it what they tell of the program's modes.
struct StepContext {
  /// Returns the module at Python's path; the root if there is none.
  std::function<const torch::nn::Module*(const std::string& path)> module_of;
  c10::Device exported_device = at::kCPU;
  std::map<Slot, std::string> buffers;  ///< paths of the buffers that are inputs
  /// The rate of attention's dropout in training where the program has 0.
  std::optional<double> attention_dropout;
  std::set<std::string> unsupported;  ///< operators that nobody has registered, with their places
  /// The mode that nodes were exported in which a mode changes, by the module that ran them.
  std::map<const torch::nn::Module*, bool> exported_training;
  /// Nodes that have nothing to compute in training mode by, with the reason.
  std::vector<std::pair<const torch::nn::Module*, std::string>> only_evaluate;
  /// Nodes that Python may run in training alone, without a trace in the program.
  std::vector<std::string> maybe_training;
  /// Attention without dropout, which an export in evaluation mode leaves no trace of.
  std::vector<std::pair<const torch::nn::Module*, std::string>> attention_without_rate;
};

class Step {
 public:
  explicit Step(const Node& node) : node_(&node) {}
  virtual ~Step() = default;
  virtual void run(Frame& frame) const = 0;
  /// Values that nobody reads after this step. They are freed when it has run; a step that runs others may
  /// free them before.
  virtual void may_free(const std::vector<Slot>& /*dead*/) {}
  const Node& node() const { return *node_; }

 private:
  const Node* node_;
};

class Steps {
 public:
  Steps(const Body& body, StepContext& context);
  /// Errors of LibTorch say which node they came from, and its line of Python.
  void run(Frame& frame) const;

 private:
  struct Planned {
    std::unique_ptr<Step> step;
    std::vector<Slot> dead;  ///< values that nobody reads after it
  };
  std::vector<Planned> steps_;
};

/// The value of an operand that is no list and no body.
inline const c10::IValue& value_of(const Operand& operand, const Frame& frame) {
  return operand.kind == Operand::Kind::kSlot ? frame.values[operand.slot] : operand.constant;
}

/// Returns the slots that an operand reads, with those that its bodies read or return.
std::set<Slot> slots_of(const Operand& operand);

/// Each nullptr where the node is of another kind.
std::unique_ptr<Step> make_number_step(const Node& node);
std::unique_ptr<Step> make_region_step(const Node& node, StepContext& context);
std::unique_ptr<Step> make_check_step(const Node& node);
std::unique_ptr<Step> make_linear_step(const Node& node, StepContext& context);
std::unique_ptr<Step> make_operator_step(const Node& node, StepContext& context);

/// "torch.ops.aten.conv2d.default (conv2d) at net.py:7 in forward: h = self.conv(x)"
std::string place_of(const Node& node);

}  // namespace levin::interchange
