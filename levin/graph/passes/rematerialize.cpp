#include <algorithm>
#include <unordered_map>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/passes/rematerialize_impl.h"

namespace levin::graph {
namespace {

std::vector<double> flops_by_node(const Graph& graph, const std::vector<IndexedNode>& nodes) {
  std::unordered_map<const Node*, double> flops;
  for (const NodeCost& cost : cost_of(graph, {.flops_per_s = 1.0}).nodes) {
    flops[cost.node] = cost.flops;
  }
  std::vector<double> by_node;
  for (const IndexedNode& node : nodes) {
    const auto found = flops.find(node.node);
    by_node.push_back(found == flops.end() ? 0.0 : found->second);
  }
  return by_node;
}

/// The schedule's order and the schedule's values become the graph's.
class Rewriter {
 public:
  Rewriter(Graph& graph, const std::vector<IndexedNode>& nodes, const Schedule& schedule)
      : graph_(graph), nodes_(nodes), schedule_(schedule) {
    for (Node& node : graph.nodes()) originals_.push_back(&node);
  }

  void run() {
    for (const Step& step : schedule_.steps) {
      next_read_ = schedule_.reads.begin() + static_cast<std::ptrdiff_t>(step.first_read);
      Node& original = *originals_[step.node];
      Node& node = step.is_again ? again(original, step) : original;
      if (!step.is_again) change_arguments(node);
      values_.insert(values_.end(), node.outputs().begin(), node.outputs().end());
    }
    for (auto step = schedule_.steps.rbegin(); step != schedule_.steps.rend(); ++step) {
      if (step->is_dropped) graph_.erase_node(*originals_[step->node]);
    }
  }

 private:
  Argument argument(Argument original) {
    if (Value** value = std::get_if<Value*>(&original)) {
      *value = values_[*next_read_++];
    } else if (auto* list = std::get_if<Values>(&original)) {
      for (Value*& element : *list) {
        if (element != nullptr) element = values_[*next_read_++];
      }
    }
    return original;
  }

  Node& again(const Node& original, const Step& step) {
    const OperatorInfo& info = info_of(original);
    const IndexedNode& indexed = nodes_[step.node];
    const InsertionPoint before = graph_.inserting_before(*originals_[step.time]);
    std::vector<Argument> arguments;
    for (size_t i = 0; i < info.num_parameters(); ++i) {
      const bool is_state = indexed.leaves_state && std::ranges::count(info.written, i) > 0;
      arguments.push_back(is_state ? Argument(nullptr) : argument(original.arguments()[i]));
    }
    Node& node =
        graph_.call_function(original.target(), std::move(arguments), {}, indexed.num_results);
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      node.output(i).set_type(original.output(i).type());
    }
    return node;
  }

  void change_arguments(Node& node) {
    const bool is_call = node.opcode() == Opcode::kCallFunction;
    const size_t count = is_call ? info_of(node).num_parameters() : node.arguments().size();
    for (size_t i = 0; i < count; ++i) {
      Argument changed = argument(node.arguments()[i]);
      if (changed != node.arguments()[i]) node.set_argument(i, std::move(changed));
    }
  }

  Graph& graph_;
  const std::vector<IndexedNode>& nodes_;
  const Schedule& schedule_;
  std::vector<Node*> originals_;
  Values values_;  ///< by number
  std::vector<size_t>::const_iterator next_read_;
};

}  // namespace

Rematerialization rematerialize(Graph& graph, int64_t budget_bytes) {
  Rematerialization done{.peak_bytes_before = memory_of(graph).peak_bytes};
  const std::vector<IndexedNode> nodes = index_nodes(graph);
  const std::vector<double> flops = flops_by_node(graph, nodes);
  const FittedSchedule fitted = fit_schedule(nodes, flops, budget_bytes);
  LEVIN_CHECK(fitted.peak_bytes <= budget_bytes, "graph.budget",
              "got a budget of {} bytes, but the lowest peak found is {} ({} without "
              "recomputation); raise the budget or use a smaller batch",
              budget_bytes, fitted.peak_bytes, done.peak_bytes_before);
  for (const Step& step : fitted.schedule.steps) {
    if (nodes[step.node].is_view || step.is_again == step.is_dropped) continue;
    done.num_operators += step.is_again ? 1 : -1;
    done.flops += step.is_again ? flops[step.node] : -flops[step.node];
  }
  Rewriter(graph, nodes, fitted.schedule).run();
  done.peak_bytes = memory_of(graph).peak_bytes;
  return done;
}

}  // namespace levin::graph
