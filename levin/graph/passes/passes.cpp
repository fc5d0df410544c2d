#include "levin/graph/passes/passes.h"

#include <ATen/core/ivalue.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

#include "levin/graph/interpret/stack_impl.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/text/text_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

bool is_pure(const Node& node) {
  return node.opcode() == Opcode::kCallFunction && info_of(node).is_pure();
}

/// Equal for calls that compute the same.
std::string key_of(const Node& node) {
  std::string key(node.target());
  const auto add = [&](const Value* value) {
    key += fmt::format(" %{}", static_cast<const void*>(value));
  };
  for (const Argument& argument : node.arguments()) {
    if (const c10::IValue* constant = constant_of(argument)) {
      key += ' ' + text_of(*constant, nullptr);
    } else if (const auto* values = std::get_if<Values>(&argument)) {
      key += " [";
      for (const Value* value : *values) add(value);
      key += " ]";
    } else {
      add(std::get<Value*>(argument));
    }
  }
  return key;
}

bool writes(const Node& node, const Value& value) {
  return std::ranges::any_of(info_of(node).written, [&](size_t index) {
    const Argument& argument = node.arguments()[index];
    if (const auto* values = std::get_if<Values>(&argument)) {
      return std::ranges::find(*values, &value) != values->end();
    }
    return std::holds_alternative<Value*>(argument) && std::get<Value*>(argument) == &value;
  });
}

/// An operator that writes both would get one tensor twice and change it twice: _foreach_mul_ of two
/// gradients that happen to be the same, or all_reduce_.
bool are_written_together(const Node& left, const Node& right) {
  for (size_t i = 0; i < left.outputs().size(); ++i) {
    for (const Node* user : left.output(i).users()) {
      if (user->opcode() != Opcode::kCallFunction) continue;
      if (writes(*user, left.output(i)) && writes(*user, right.output(i))) return true;
    }
  }
  return false;
}

std::string new_name(std::set<std::string>& used) {
  for (size_t i = 0;; ++i) {
    std::string name = fmt::format("_constant{}", i);
    if (used.insert(name).second) return name;
  }
}

}  // namespace

size_t eliminate_common_subexpressions(Graph& graph) {
  std::unordered_map<std::string, Node*> first;
  size_t num_erased = 0;
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    Node& node = *place++;
    if (!is_pure(node)) continue;
    const auto [known, is_new] = first.try_emplace(key_of(node), &node);
    if (is_new || are_written_together(node, *known->second)) continue;
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      node.output(i).replace_all_uses_with(known->second->output(i));
    }
    graph.erase_node(node);
    ++num_erased;
  }
  return num_erased;
}

size_t fold_constants(Graph& graph) {
  std::set<std::string> used;
  for (const Node& node : graph.nodes()) used.insert(node.name());
  size_t num_folded = 0;
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    Node& node = *place++;
    if (!is_pure(node) || !node.inputs().empty()) continue;
    torch::jit::Stack stack = stack_of(node, {});
    node.op().callBoxed(&stack);
    std::vector<at::Tensor> results;
    append_results(info_of(node), stack, results);
    const InsertionPoint here = graph.inserting_before(node);
    for (size_t i = 0; i < results.size(); ++i) {
      Value& constant = graph.get_attr(new_name(used), results[i]);
      node.output(i).replace_all_uses_with(constant);
    }
    graph.erase_node(node);
    ++num_folded;
  }
  return num_folded;
}

size_t keep_what_outputs_need(Graph& graph) {
  graph.set_updates({});
  size_t num_erased = 0;
  Graph::Nodes& nodes = graph.nodes();
  for (auto place = nodes.end(); place != nodes.begin();) {
    Node& node = *--place;
    const bool is_used = std::ranges::any_of(
        node.outputs(), [](const Value* value) { return !value->users().empty(); });
    if (is_used || node.opcode() != Opcode::kCallFunction) continue;
    ++place;
    graph.erase_node(node);
    ++num_erased;
  }
  return num_erased;
}

}  // namespace levin::graph
