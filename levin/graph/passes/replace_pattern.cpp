#include <ATen/core/ivalue.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "levin/base/check.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/text/text_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

/// Values and nodes of the pattern, and what stands for them in the graph.
struct Match {
  std::unordered_map<const Value*, Value*> values;
  std::unordered_map<const Node*, Node*> nodes;
};

std::vector<const Node*> calls_of(const Graph& graph) {
  std::vector<const Node*> calls;
  for (const Node& node : graph.nodes()) {
    if (node.opcode() == Opcode::kCallFunction) calls.push_back(&node);
  }
  return calls;
}

bool is_same_constant(const c10::IValue& left, const c10::IValue& right) {
  // The text tells integers from floats and knows wrapped numbers.
  return text_of(left, nullptr) == text_of(right, nullptr);
}

class Matcher {
 public:
  explicit Matcher(const Graph& pattern) : pattern_(pattern), calls_(calls_of(pattern)) {}

  /// An occurrence whose last operator is this node.
  std::optional<Match> at(Node& node) const {
    Match match;
    if (!same_node(*calls_.back(), node, match) || match.nodes.size() != calls_.size()) return {};
    for (const auto& [part, found] : match.nodes) {
      for (size_t i = 0; i < part->outputs().size(); ++i) {
        if (!is_output(part->output(i)) && !is_inside(found->output(i), match)) return {};
      }
    }
    return match;
  }

 private:
  bool is_output(const Value& value) const {
    return std::ranges::count(pattern_.outputs(), &value) != 0;
  }

  static bool is_inside(const Value& value, const Match& match) {
    return std::ranges::all_of(value.users(), [&](const Node* user) {
      return std::ranges::any_of(match.nodes,
                                 [&](const auto& pair) { return pair.second == user; });
    });
  }

  bool same_node(const Node& part, Node& node, Match& match) const {
    if (const auto known = match.nodes.find(&part); known != match.nodes.end()) {
      return known->second == &node;
    }
    if (node.opcode() != Opcode::kCallFunction || node.target() != part.target() ||
        node.outputs().size() != part.outputs().size()) {
      return false;
    }
    match.nodes[&part] = &node;
    for (size_t i = 0; i < part.outputs().size(); ++i) {
      match.values[&part.output(i)] = &node.output(i);
    }
    for (size_t i = 0; i < part.arguments().size(); ++i) {
      if (!same_argument(part.arguments()[i], node.arguments()[i], match)) return false;
    }
    return true;
  }

  bool same_argument(const Argument& part, const Argument& argument, Match& match) const {
    if (part.index() != argument.index()) return false;
    if (const c10::IValue* constant = constant_of(part)) {
      return is_same_constant(*constant, *constant_of(argument));
    }
    if (Value* const* value = std::get_if<Value*>(&part)) {
      return same_value(*value, std::get<Value*>(argument), match);
    }
    const auto& parts = std::get<Values>(part);
    const auto& values = std::get<Values>(argument);
    if (parts.size() != values.size()) return false;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!same_value(parts[i], values[i], match)) return false;
    }
    return true;
  }

  bool same_value(const Value* part, Value* value, Match& match) const {
    if (part == nullptr || value == nullptr) return part == value;
    if (part->node().opcode() == Opcode::kPlaceholder) {
      return match.values.emplace(part, value).first->second == value;
    }
    return same_node(part->node(), value->node(), match) && match.values.at(part) == value;
  }

  const Graph& pattern_;
  std::vector<const Node*> calls_;
};

/// Returns whether an operator between those of the match needs one of its results.
bool is_used_before(const Graph& graph, const Match& match, const Node& last) {
  std::unordered_set<const Node*> users;
  for (const auto& [part, found] : match.nodes) {
    if (found == &last) continue;
    for (const Value* value : found->outputs()) {
      users.insert(value->users().begin(), value->users().end());
    }
  }
  for (const auto& [part, found] : match.nodes) users.erase(found);
  if (users.empty()) return false;
  for (const Node& node : graph.nodes()) {
    if (&node == &last) return false;
    if (users.contains(&node)) return true;
  }
  return false;
}

void check_patterns(const Graph& pattern, const Graph& replacement) {
  for (const Graph* graph : {&pattern, &replacement}) {
    const char* name = graph == &pattern ? "pattern" : "replacement";
    for (const Node& node : graph->nodes()) {
      const bool is_plain = node.opcode() == Opcode::kPlaceholder ||
                            node.opcode() == Opcode::kOutput ||
                            (node.opcode() == Opcode::kCallFunction && !node.is_random());
      LEVIN_CHECK(is_plain, "graph.pattern",
                  "the {} has {} {}, wanted only inputs and operators that draw no random numbers",
                  name, node.target(), node.name());
    }
    LEVIN_CHECK(graph->updates().empty(), "graph.pattern",
                "the {} writes to an input, wanted one that only computes", name);
  }
  LEVIN_CHECK(!calls_of(pattern).empty(), "graph.pattern", "the pattern has no operators");
  const auto inputs = pattern.find_nodes(Opcode::kPlaceholder).size();
  const auto others = replacement.find_nodes(Opcode::kPlaceholder).size();
  LEVIN_CHECK(inputs == others && pattern.outputs().size() == replacement.outputs().size(),
              "graph.pattern",
              "got a pattern of {} inputs and {} outputs and a replacement of {} and {}, wanted "
              "equal numbers",
              inputs, pattern.outputs().size(), others, replacement.outputs().size());
}

/// The replacement's operators where the match ends; gives what stands for its outputs.
Values insert_copy(Graph& graph, const Match& match, const Graph& pattern,
                   const Graph& replacement) {
  std::unordered_map<const Value*, Value*> values = {{nullptr, nullptr}};
  const auto inputs = pattern.find_nodes(Opcode::kPlaceholder);
  const auto own_inputs = replacement.find_nodes(Opcode::kPlaceholder);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto bound = match.values.find(&inputs[i]->output());
    if (bound != match.values.end()) values[&own_inputs[i]->output()] = bound->second;
  }
  for (const Node* node : calls_of(replacement)) {
    std::vector<Argument> arguments(node->arguments().begin(), node->arguments().end());
    for (Argument& argument : arguments) {
      if (Value** value = std::get_if<Value*>(&argument)) *value = values.at(*value);
      if (auto* list = std::get_if<Values>(&argument)) {
        for (Value*& value : *list) value = values.at(value);
      }
    }
    const Node& copy =
        graph.call_function(node->target(), std::move(arguments), {}, node->outputs().size());
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      values[&node->output(i)] = &copy.output(i);
    }
  }
  Values outputs;
  for (const Value* value : replacement.outputs()) outputs.push_back(values.at(value));
  return outputs;
}

}  // namespace

size_t replace_pattern(Graph& graph, const Graph& pattern, const Graph& replacement) {
  check_patterns(pattern, replacement);
  const Matcher matcher(pattern);
  size_t num_replaced = 0;
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    const auto match = matcher.at(*place);
    if (!match || is_used_before(graph, *match, *place)) {
      ++place;
      continue;
    }
    const auto next = std::next(place);
    Values outputs;
    {
      const InsertionPoint before = graph.inserting_before(*place);
      outputs = insert_copy(graph, *match, pattern, replacement);
    }
    const Values old_outputs = pattern.outputs();
    for (size_t i = 0; i < outputs.size(); ++i) {
      Value& old_output = *match->values.at(old_outputs[i]);
      if (outputs[i]->type().dtype == at::ScalarType::Undefined) {
        outputs[i]->set_type(old_output.type());
      }
      old_output.replace_all_uses_with(*outputs[i]);
    }
    const std::vector<const Node*> calls = calls_of(pattern);
    for (size_t i = calls.size(); i-- > 0;) graph.erase_node(*match->nodes.at(calls[i]));
    place = next;
    ++num_replaced;
  }
  return num_replaced;
}

}  // namespace levin::graph
