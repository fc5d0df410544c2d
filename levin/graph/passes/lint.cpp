#include <ATen/core/ivalue.h>

#include <algorithm>
#include <set>

#include "levin/base/check.h"
#include "levin/graph/graph.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/text/text_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

/// Describes how the argument contradicts the schema's type; empty if it fits.
std::string misfit(const c10::Argument& parameter, const Argument& argument) {
  const c10::Type& type = *parameter.type();
  c10::TypePtr came = c10::TensorType::get();
  if (std::holds_alternative<Values>(argument)) {
    came = c10::ListType::ofTensors();
    const auto optionals = c10::ListType::create(c10::OptionalType::ofTensor());
    if (optionals->isSubtypeOf(type)) return "";
  } else if (const c10::IValue* constant = constant_of(argument)) {
    came = constant->type();
    if (constant->isScalar() && c10::NumberType::get()->isSubtypeOf(type)) return "";
    if (constant->isList() && constant->toListRef().empty() && type.cast<c10::ListType>())
      return "";
  }
  if (came->isSubtypeOf(type)) return "";
  return fmt::format("got {} for {}, wanted {}", came->str(), parameter.name(), type.str());
}

void check_call(const Node& node, const OperatorInfo& info, const std::string& text) {
  LEVIN_CHECK(node.arguments().size() == info.num_arguments(), "graph.lint",
              "got {} arguments, wanted {} as in the schema: {}", node.arguments().size(),
              info.num_arguments(), text);
  for (size_t i = 0; i < info.num_parameters(); ++i) {
    const std::string fault = misfit(info.parameters()[i], node.arguments()[i]);
    LEVIN_CHECK(fault.empty(), "graph.lint", "{}: {}", fault, text);
  }
  if (!info.is_random) return;
  Value* const* state = std::get_if<Value*>(&node.arguments().back());
  const bool is_random = state != nullptr && (*state)->type().kind == ValueKind::kRandom;
  LEVIN_CHECK(is_random, "graph.lint", "got no random state to draw from: {}", text);
  LEVIN_CHECK((*state)->users().size() == 1, "graph.lint",
              "got a random state that others draw from too, wanted the newest: {}", text);
}

void check_uses(const Node& node, const std::set<const Value*>& made, const std::string& text) {
  for (const Value* value : node.inputs()) {
    LEVIN_CHECK(made.contains(value), "graph.lint",
                "got a value that {} returns later or in another graph; move one of the nodes: {}",
                made.empty() ? "nothing" : value->node().target(), text);
    const auto uses = std::ranges::count(value->users(), &node);
    LEVIN_CHECK(uses == std::ranges::count(node.inputs(), value), "graph.lint",
                "got {} registered uses, which differ from the arguments; change arguments with "
                "set_argument: {}",
                uses, text);
  }
}

}  // namespace

void Graph::lint() const {
  const Names names(*this);
  std::set<const Value*> made;
  std::set<std::string> inputs;
  for (const Node& node : nodes()) {
    const std::string text = line_of(*this, node, names);
    check_uses(node, made, text);
    if (node.info_ != nullptr) check_call(node, *node.info_, text);
    if (!node.name_.empty()) {
      LEVIN_CHECK(inputs.insert(node.name_).second, "graph.lint",
                  "got a second input of that name: {}", text);
    }
    made.insert(node.outputs_.begin(), node.outputs_.end());
  }
  LEVIN_CHECK(nodes().back().opcode_ == Opcode::kOutput, "graph.lint",
              "got {} as last node, wanted the output node", nodes().back().target());
  for (const Update& update : updates()) {
    const Opcode opcode = update.target->node().opcode();
    LEVIN_CHECK(
        made.contains(update.target) && opcode != Opcode::kCallFunction, "graph.lint",
        "got an update of the result of {}, wanted an update of an input or of a state tensor",
        update.target->node().target());
  }
}

}  // namespace levin::graph
