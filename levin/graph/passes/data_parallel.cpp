#include <ATen/core/ivalue.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/comm/collectives/named_group.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

using ValueSet = std::unordered_set<const Value*>;

bool is_parameter(const Value& value) {
  const Node& node = value.node();
  return node.opcode() == Opcode::kGetAttr && node.tensor().defined() &&
         node.tensor().requires_grad();
}

/// The value that the node overwrote with this one; nullptr if it did not write in place.
Value* before_write(const Value& value) {
  const Node& node = value.node();
  if (node.opcode() != Opcode::kCallFunction) return nullptr;
  Values written;
  for (const size_t index : info_of(node).written) {
    for_each_value(node.arguments()[index], [&](Value& one) { written.push_back(&one); });
  }
  const size_t end = node.outputs().size() - (node.is_random() ? 1 : 0);
  for (size_t i = 0; i < written.size(); ++i) {
    if (node.outputs()[end - written.size() + i] == &value) return written[i];
  }
  return nullptr;
}

/// Returns whether it is memory without contents, into which autograd copies a gradient that it may
/// not take itself.
bool is_unwritten(const Value& value) {
  const std::string_view target = value.node().target();
  return target.starts_with("aten::empty") || target.starts_with("aten::new_empty");
}

/// Returns the values from the one that backward made first to the last one, each written over the
/// one before.
Values written_chain(Value& last) {
  Values chain = {&last};
  for (Value* value = before_write(last); value != nullptr; value = before_write(*value)) {
    chain.push_back(value);
  }
  std::ranges::reverse(chain);
  if (chain.size() > 1 && is_unwritten(*chain.front())) chain.erase(chain.begin());
  return chain;
}

/// Returns whether an optimizer computed the value from a parameter: then it is the same on all
/// ranks if the gradient is.
bool is_updated_parameter(Value& value) {
  const Value* first = nullptr;
  for (Value* one = before_write(value); one != nullptr; one = before_write(*one)) first = one;
  return first != nullptr && is_parameter(*first);
}

/// Returns all values computed from these, except by way of parameters that they have updated.
ValueSet computed_from(const Graph& graph, const ValueSet& starts) {
  ValueSet found;
  for (const Node& node : graph.nodes()) {
    const bool depends = std::ranges::any_of(node.inputs(), [&](const Value* input) {
      return starts.contains(input) || found.contains(input);
    });
    if (!depends) continue;
    for (Value* output : node.outputs()) {
      if (!is_updated_parameter(*output)) found.insert(output);
    }
  }
  return found;
}

/// Backward adds up what reaches a parameter by several ways.
bool is_accumulation(const Node& node, const ValueSet& of_gradients) {
  if (node.target() != "aten::add_.Tensor") return false;
  const c10::IValue* alpha = constant_of(node.arguments()[2]);
  return alpha != nullptr && alpha->isScalar() && alpha->toScalar().equal(1) &&
         node.inputs().size() == 2 && !of_gradients.contains(node.input(1));
}

class GradientFinder {
 public:
  explicit GradientFinder(const Graph& graph) {
    std::unordered_set<const Value*> with_gradient;
    for (const Update& update : graph.updates()) {
      if (!update.is_gradient || update.value == nullptr || !is_parameter(*update.target)) continue;
      if (update.value->type().kind != ValueKind::kTensor) continue;
      with_gradient.insert(update.target);
      chains_.push_back(written_chain(*update.value));
      names_.push_back(update.target->node().name());
    }
    for (const Update& update : graph.updates()) {
      const bool learns = !update.is_gradient && is_parameter(*update.target);
      LEVIN_CHECK(!learns || with_gradient.contains(update.target), "graph.data_parallel",
                  "{} is updated, but the graph keeps no gradient of it; call zero_grad before "
                  "backward instead of after the update",
                  update.target->node().name());
    }
    ValueSet first;
    for (const Values& chain : chains_) first.insert(chain.front());
    of_gradients_ = computed_from(graph, first);
  }

  /// Returns the gradients as backward leaves them, each once.
  Values found() const {
    Values gradients;
    for (size_t i = 0; i < chains_.size(); ++i) {
      const Values& chain = chains_[i];
      LEVIN_CHECK(!of_gradients_.contains(chain.front()), "graph.data_parallel",
                  "the gradient of {} is computed from another parameter's gradient; change "
                  "gradients in place after backward",
                  names_[i]);
      size_t last = 0;
      while (last + 1 < chain.size() && is_accumulation(chain[last + 1]->node(), of_gradients_)) {
        ++last;
      }
      if (std::ranges::find(gradients, chain[last]) == gradients.end()) {
        gradients.push_back(chain[last]);
      }
    }
    return gradients;
  }

 private:
  std::vector<Values> chains_;
  std::vector<std::string> names_;
  ValueSet of_gradients_;  ///< values computed from gradients
};

Node& insert_all_reduce(Graph& graph, const Values& tensors, const Argument& group,
                        const Argument& op) {
  return graph.call_function("levin::all_reduce_", {tensors, group, op});
}

}  // namespace

size_t insert_gradient_all_reduces(Graph& graph, const std::string& group) {
  graph.eliminate_dead_code();  // among it views of gradients that autograd made for nobody
  const Values gradients = GradientFinder(graph).found();
  const Argument ranks(c10::IValue(comm::NamedGroup::called(group)));
  for (Value* gradient : gradients) {
    const InsertionPoint after = graph.inserting_after(gradient->node());
    const Value::Users users = gradient->users();
    Node& mean = insert_all_reduce(graph, {gradient}, ranks, "mean");
    for (Node* user : users) user->replace_input_with(*gradient, mean.output());
  }
  return gradients.size();
}

}  // namespace levin::graph
