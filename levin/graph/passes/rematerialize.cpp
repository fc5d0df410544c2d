#include <ATen/ops/empty.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/state.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/collective_impl.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/passes/rematerialize_impl.h"

namespace levin::graph {
namespace {

/// The cost of running a node once more.
struct Prices {
  std::vector<double> flops;     ///< by node; none for collectives
  std::vector<double> in_flops;  ///< what the device could do in that time
};

/// The device that the graph's tensors are on, as far as the cost model knows it.
DeviceDescription device_of(const Graph& graph) {
  const bool is_on_gpu = std::ranges::any_of(graph.nodes(), [](const Node& node) {
    return std::ranges::any_of(node.outputs(),
                               [](const Value* value) { return value->type().device.is_cuda(); });
  });
  return *find_device(is_on_gpu ? "a100" : "cpu");
}

Prices prices_of(const Graph& graph, const std::vector<IndexedNode>& nodes) {
  std::unordered_map<const Node*, NodeCost> costs;
  const DeviceDescription device = device_of(graph);
  for (const NodeCost& cost : cost_of(graph, device).nodes) costs[cost.node] = cost;
  Prices prices;
  for (const IndexedNode& node : nodes) {
    const NodeCost& cost = costs[node.node];
    const bool is_exchange =
        node.node->opcode() == Opcode::kCallFunction && info_of(*node.node).is_collective;
    prices.flops.push_back(is_exchange ? 0.0 : cost.flops);
    prices.in_flops.push_back(is_exchange ? cost.seconds * device.flops_per_s : cost.flops);
  }
  return prices;
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

/// The cuts of rank 0, which all ranks follow: else they would gather in different orders. Fits if
/// that is so on all ranks.
struct Agreed {
  Cuts cuts;
  bool fits = false;
};

Agreed agreed(const FittedSchedule& fitted, int64_t budget_bytes, comm::ProcessGroup group) {
  const bool fits = !group.any(fitted.peak_bytes > budget_bytes);
  std::vector<int64_t> flat = {static_cast<int64_t>(fitted.cuts.size())};
  for (const std::vector<size_t>& cuts : fitted.cuts) {
    flat.push_back(static_cast<int64_t>(cuts.size()));
    flat.insert(flat.end(), cuts.begin(), cuts.end());
  }
  const at::Tensor numbers = at::empty({static_cast<int64_t>(flat.size())}, at::kLong);
  std::ranges::copy(flat, numbers.mutable_data_ptr<int64_t>());
  const State state = group.broadcast(State().set("cuts", numbers), 0);
  const at::Tensor& first = state.tensor("cuts");
  const auto* next = first.const_data_ptr<int64_t>();
  // An error on all ranks: one that went on alone would wait for the others.
  const bool is_another = static_cast<size_t>(*next) != fitted.cuts.size();
  LEVIN_CHECK(
      !group.any(is_another), "graph.collectives",
      "got a graph of {} nodes on rank {} and of {} nodes on rank 0, or another number on another "
      "rank; record the same step on all ranks",
      fitted.cuts.size(), group.rank(), *next);
  ++next;
  Agreed result{.cuts = Cuts(fitted.cuts.size()), .fits = fits};
  for (std::vector<size_t>& cuts : result.cuts) {
    const int64_t count = *next++;
    cuts.assign(next, next + count);
    next += count;
  }
  return result;
}

/// A search on the graph as it is, or without writes in place: these may become copies if operators
/// run again.
struct Attempt {
  std::vector<IndexedNode> nodes;
  Prices prices;
  FittedSchedule fitted;
  bool fits = false;
  int64_t peak_bytes = 0;  ///< of the graph that comes out, the largest account of it

  Attempt(const Graph& graph, int64_t budget_bytes, const RematerializeOptions& options,
          bool in_place)
      : nodes(index_nodes(graph, {in_place, options.group.has_value()})),
        prices(prices_of(graph, nodes)),
        fitted(fit_schedule(nodes, prices.in_flops, budget_bytes)),
        fits(fitted.peak_bytes <= budget_bytes),
        peak_bytes(fitted.peak_bytes) {
    if (options.group && options.group->size() > 1) {
      Agreed all = agreed(fitted, budget_bytes, *options.group);
      fits = all.fits;
      fitted.schedule = schedule_of(nodes, all.cuts);
      fitted.cuts = std::move(all.cuts);
    }
    if (!fits) return;
    Graph changed = graph.clone();
    Rewriter(changed, index_nodes(changed, {in_place, options.group.has_value()}), fitted.schedule)
        .run();
    peak_bytes = std::max(peak_bytes, memory_of(changed).peak_bytes);
  }

  bool has_writes_in_place() const {
    return std::ranges::any_of(nodes, [](const IndexedNode& node) {
      return std::ranges::any_of(node.reads, &IndexedNode::Read::is_in_place);
    });
  }
};

/// Tries until the graph that comes out fits: what lies in one memory may be kept longer than the
/// search accounts for.
Attempt fitted_graph(const Graph& graph, int64_t budget_bytes,
                     const RematerializeOptions& options) {
  constexpr int kTries = 4;
  const auto is_over_on_a_rank = [&](const Attempt& attempt) {
    const bool is_over = attempt.peak_bytes > budget_bytes;
    return options.group ? comm::ProcessGroup(*options.group).any(is_over) : is_over;
  };
  std::optional<Attempt> first;
  for (const bool in_place : {true, false}) {
    int64_t target = budget_bytes;
    for (int i = 0; i < kTries; ++i) {
      Attempt attempt(graph, target, options, in_place);
      const bool fits = attempt.fits;
      attempt.fits = fits && !is_over_on_a_rank(attempt);
      if (attempt.fits) return attempt;
      target -= std::max<int64_t>(attempt.peak_bytes - budget_bytes, 0);
      const bool is_last = !attempt.has_writes_in_place() && in_place;
      if (!first || attempt.peak_bytes < first->peak_bytes) first.emplace(std::move(attempt));
      if (is_last) return std::move(*first);
      if (!fits) break;
    }
  }
  return std::move(*first);
}

}  // namespace

Rematerialization rematerialize(Graph& graph, int64_t budget_bytes,
                                const RematerializeOptions& options) {
  Rematerialization done{.peak_bytes_before = memory_of(graph).peak_bytes};
  if (options.group) join_starts(graph);
  const Attempt attempt = fitted_graph(graph, budget_bytes, options);
  LEVIN_CHECK(attempt.fits, "graph.budget",
              "got a budget of {} bytes, but the lowest peak found is {} ({} without "
              "recomputation); raise the budget or use a smaller batch",
              budget_bytes, attempt.peak_bytes, done.peak_bytes_before);
  const std::vector<IndexedNode>& nodes = attempt.nodes;
  for (const Step& step : attempt.fitted.schedule.steps) {
    const Node& node = *nodes[step.node].node;
    if (nodes[step.node].is_view || step.is_again == step.is_dropped) continue;
    if (node.opcode() != Opcode::kCallFunction || info_of(node).makes_unwritten) continue;
    const int64_t change = step.is_again ? 1 : -1;
    done.num_operators += change;
    done.flops += static_cast<double>(change) * attempt.prices.flops[step.node];
    if (const auto collective = Collective::of(node)) {
      done.num_gathers += change;
      done.gathered_bytes += change * collective->bytes();
    }
  }
  Rewriter(graph, nodes, attempt.fitted.schedule).run();
  done.peak_bytes = memory_of(graph).peak_bytes;
  return done;
}

}  // namespace levin::graph
