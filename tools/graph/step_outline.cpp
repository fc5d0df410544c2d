#include "tools/graph/step_outline.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "levin/graph/operator_info.h"
#include "levin/graph/values.h"

namespace levin::tools {
namespace {

using graph::Node;
using graph::Opcode;
using graph::Update;
using graph::Value;
using graph::ValueKind;
using Nodes = std::unordered_set<const Node*>;

bool is_view(const Node& node) {
  return info_of(node).returns_view && info_of(node).written.empty();
}

int64_t numel(const Value& value) {
  const auto& sizes = value.type().sizes;
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies());
}

/// The value that the operator has overwritten with this one; nullptr if this one has memory of its own.
const Value* overwritten_by(const Node& node, const Value& value) {
  std::vector<const Value*> written;
  for (const size_t argument : info_of(node).written) {
    graph::for_each_value(node.arguments()[argument],
                          [&](const Value& old) { written.push_back(&old); });
  }
  const size_t num_tensors = node.outputs().size() - (node.is_random() ? 1 : 0);
  for (size_t i = 0; i < written.size(); ++i) {
    if (node.outputs()[num_tensors - written.size() + i] == &value) return written[i];
  }
  return nullptr;
}

/// Clipping, unscaling and optimizers write gradients in place: whole lists, or one by a number.
/// The backward pass adds tensors of one size.
bool is_adjustment(const Node& node, const Value& gradient) {
  const std::string_view target = node.target();
  if (target.starts_with("aten::_") && (target.find("foreach_") != std::string_view::npos ||
                                        target.find("fused_") != std::string_view::npos)) {
    return true;
  }
  return std::ranges::all_of(node.inputs(), [&](const Value* input) {
    return input == nullptr || input == &gradient || numel(*input) == 1;
  });
}

/// The gradient as the backward pass made it.
const Value& before_adjustments(const Value& gradient) {
  const Value* value = &gradient;
  while (value->node().opcode() == Opcode::kCallFunction) {
    const Node& node = value->node();
    const Value* before = is_view(node) ? node.input(0) : overwritten_by(node, *value);
    if (before == nullptr || !(is_view(node) || is_adjustment(node, *before))) break;
    value = before;
  }
  return *value;
}

/// "net.0" of "net.0.weight"; empty for a tensor of the net itself.
std::string module_of_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  return std::string(dot == std::string_view::npos ? "" : name.substr(0, dot));
}

std::string common_module(const std::string& left, const std::string& right) {
  const auto [end, other] = std::ranges::mismatch(left, right);
  const bool ends_both =
      (end == left.end() || *end == '.') && (other == right.end() || *other == '.');
  const std::string common(left.begin(), end);
  return ends_both ? common : module_of_name(common);
}

/// The module that all of those that were added have in common.
class CommonModule {
 public:
  void add(const std::string& module) {
    module_ = module_ ? common_module(*module_, module) : module;
  }
  const std::optional<std::string>& get() const { return module_; }

 private:
  std::optional<std::string> module_;
};

class Outliner {
 public:
  explicit Outliner(const graph::Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) {
      places_[&node] = nodes_.size();
      nodes_.push_back(&node);
    }
  }

  StepOutline run() {
    find_gradients();
    find_owners();
    find_phases();
    for (const Node* node : nodes_) {
      if (node->opcode() == Opcode::kCallFunction) role_of(*node).module = module_of(*node);
    }
    return std::move(outline_);
  }

 private:
  Role& role_of(const Node& node) { return outline_.roles.at(&node); }

  void find_gradients() {
    for (const Update& update : graph_.updates()) {
      const Node& target = update.target->node();
      if (!update.is_gradient || target.opcode() != Opcode::kGetAttr) continue;
      outline_.parameters.insert(&target);
      if (update.value == nullptr || update.value->type().kind != ValueKind::kTensor) continue;
      const Value& gradient = before_adjustments(*update.value);
      outline_.gradients.insert(&gradient);
      credit(gradient, module_of_name(target.name()));
    }
  }

  /// The gradient of a parameter that is used twice, as tied weights are, is a sum.
  void credit(const Value& gradient, const std::string& module) {
    const Node& node = before_adjustments(gradient).node();
    gradients_of_[&node].push_back(module);
    if (node.target() != "aten::add.Tensor" && node.target() != "aten::add_.Tensor") return;
    for (const Value* input : node.inputs()) {
      if (numel(*input) == numel(gradient)) credit(*input, module);
    }
  }

  /// An optimizer's tensors are named after the parameter: "exp_avg of net.0.weight".
  void find_owners() {
    std::unordered_set<std::string> parameters;
    for (const Node* parameter : outline_.parameters) parameters.insert(parameter->name());
    for (const Node* node : nodes_) {
      if (node->opcode() != Opcode::kGetAttr && !is_old_gradient(*node)) continue;
      const size_t of = node->name().find(" of ");
      const bool is_of = of != std::string::npos;
      const std::string name = is_of ? node->name().substr(of + 4) : node->name();
      const bool is_buffer = !is_of && name.find('.') != std::string::npos;
      if (!is_buffer && !parameters.contains(name)) continue;
      outline_.owners[node] = owners_[&node->output()] = module_of_name(name);
    }
  }

  Nodes ancestors_of(std::vector<const Value*> values) const {
    Nodes found;
    while (!values.empty()) {
      const Node& node = values.back()->node();
      values.pop_back();
      if (!found.insert(&node).second) continue;
      for (const Value* input : node.inputs()) {
        if (input != nullptr && input->type().kind != ValueKind::kRandom) values.push_back(input);
      }
    }
    return found;
  }

  /// The first output; where a step returns none, what the backward pass begins with.
  std::vector<const Value*> loss() const {
    const graph::Values outputs = graph_.outputs();
    if (!outputs.empty() && outputs[0] != nullptr) return {outputs[0]};
    for (const Node* node : nodes_) {
      if (node->target() != "aten::ones_like") continue;
      if (node->input(0)->type().sizes.empty()) return {node->input(0)};
    }
    return {};
  }

  void find_phases() {
    const Nodes forward = ancestors_of(loss());
    const auto& gradients = outline_.gradients;
    const Nodes backward = ancestors_of({gradients.begin(), gradients.end()});
    std::vector<const Value*> written;
    for (const Update& update : graph_.updates()) {
      if (!update.is_gradient && update.value != nullptr) written.push_back(update.value);
    }
    const Nodes update = ancestors_of(std::move(written));
    size_t last_gradient = gradients.empty() ? nodes_.size() : 0;
    for (const Value* gradient : gradients) {
      last_gradient = std::max(last_gradient, places_.at(&gradient->node()));
    }
    Phase now = Phase::kForward;  // what nothing depends on, as a metric, goes with its neighbours
    for (const Node* node : nodes_) {
      if (node->opcode() != Opcode::kCallFunction) continue;
      if (forward.contains(node)) {
        now = Phase::kForward;
      } else if (backward.contains(node)) {
        now = Phase::kBackward;
      } else if (!is_view(*node) && (places_.at(node) > last_gradient ||
                                     (now != Phase::kForward && update.contains(node)))) {
        now = Phase::kUpdate;  // which may begin while the backward pass goes on
      }
      outline_.roles[node].phase = now;
    }
  }

  std::string module_of(const Node& node) {
    CommonModule owner;
    for (const Value* input : node.inputs()) {
      const auto found = owners_.find(input);
      if (found == owners_.end()) continue;
      owner.add(found->second);
      if (is_view(node)) {
        const std::string module = found->second;
        for (const Value* output : node.outputs()) owners_[output] = module;
      }
    }
    if (const auto made = gradients_of_.find(&node); made != gradients_of_.end()) {
      for (const std::string& module : made->second) owner.add(module);
    }
    return owner.get() ? *owner.get() : module_of_operands(node);
  }

  /// In the backward pass an operand from the forward pass says more than the incoming gradient,
  /// which the next module has made. An update over many modules is none of theirs.
  std::string module_of_operands(const Node& node) {
    const Phase phase = role_of(node).phase;
    CommonModule of_all;
    const Node *last = nullptr, *last_forward = nullptr;
    const auto later = [&](const Node* one, const Node& other) {
      return one == nullptr || places_.at(one) < places_.at(&other) ? &other : one;
    };
    for (const Value* input : node.inputs()) {
      if (input == nullptr || input->node().opcode() != Opcode::kCallFunction) continue;
      const Role& role = role_of(input->node());
      of_all.add(role.module);
      last = later(last, input->node());
      if (role.phase == Phase::kForward) last_forward = later(last_forward, input->node());
    }
    if (last == nullptr) return "";
    if (phase == Phase::kUpdate) return *of_all.get();
    const bool is_of_forward = phase == Phase::kBackward && last_forward != nullptr;
    return role_of(is_of_forward ? *last_forward : *last).module;
  }

  const graph::Graph& graph_;
  StepOutline outline_;
  std::vector<const Node*> nodes_;
  std::unordered_map<const Node*, size_t> places_;
  std::unordered_map<const Value*, std::string> owners_;  ///< of state, through views
  std::unordered_map<const Node*, std::vector<std::string>> gradients_of_;
};

}  // namespace

std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[] = {"forward", "backward", "update"};
  return kNames[static_cast<size_t>(phase)];
}

bool is_old_gradient(const Node& node) {
  return node.opcode() == Opcode::kPlaceholder && node.name().starts_with("gradient of ");
}

StepOutline outline_of(const graph::Graph& graph) { return Outliner(graph).run(); }

int64_t num_parameters(const StepOutline& outline) {
  int64_t count = 0;
  for (const Node* parameter : outline.parameters) count += numel(parameter->output());
  return count;
}

graph::MemoryUse use_of(const graph::LiveValue& live, const StepOutline& outline) {
  const Node& node = live.value->node();
  if (is_old_gradient(node)) return graph::MemoryUse::kGradient;
  return outline.parameters.contains(&node) ? graph::MemoryUse::kParameter : live.use;
}

}  // namespace levin::tools
