#include <ATen/core/ivalue.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/comm/collectives/bucket_plan.h"
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

bool is_all_reduce(const Node& node) { return node.target() == "levin::all_reduce_"; }

Node& insert_all_reduce(Graph& graph, const Values& tensors, const Argument& group,
                        const Argument& op) {
  return graph.call_function("levin::all_reduce_", {tensors, group, op});
}

const Values& tensors_of(const Node& all_reduce) {
  return std::get<Values>(all_reduce.arguments()[0]);
}

/// Returns all that it sends, as one gradient.
comm::PlannedGradient gradient_of(const Node& all_reduce) {
  comm::PlannedGradient gradient;
  for (const Value* tensor : tensors_of(all_reduce)) {
    gradient.numel += c10::multiply_integers(tensor->type().sizes);
    gradient.type = tensor->type().dtype;
  }
  return gradient;
}

bool go_together(const Node& left, const Node& right) {
  const auto group_of = [](const Node& node) {
    return comm::NamedGroup::in(*constant_of(node.arguments()[1]));
  };
  const auto op_of = [](const Node& node) {
    return constant_of(node.arguments()[2])->toStringView();
  };
  if (tensors_of(left).empty() || tensors_of(right).empty()) return false;
  const ValueType& mine = tensors_of(left).front()->type();
  const ValueType& others = tensors_of(right).front()->type();
  return group_of(left) == group_of(right) && op_of(left) == op_of(right) &&
         mine.dtype == others.dtype && mine.device == others.device;
}

/// Joins all-reduces as a plan says, each bucket at the place of its last member.
class BucketBuilder {
 public:
  BucketBuilder(Graph& graph, int64_t limit_bytes) : graph_(graph), limit_bytes_(limit_bytes) {}

  /// Called before the nodes after it: a node that must come after the run ends it.
  void pass(const Node& node) {
    const bool is_collective = node.opcode() == Opcode::kCallFunction &&
                               !node.target().starts_with("aten::") && !info_of(node).is_pure();
    if (reads_run(node) || is_collective) close();
  }

  void add(Node& all_reduce) {
    const bool follows =
        !run_.empty() && !reads_run(all_reduce) && go_together(*run_.front(), all_reduce);
    if (!follows) close();
    run_.push_back(&all_reduce);
    given_.insert(all_reduce.outputs().begin(), all_reduce.outputs().end());
  }

  void close() {
    std::vector<comm::PlannedGradient> gradients;
    for (const Node* all_reduce : run_) gradients.push_back(gradient_of(*all_reduce));
    std::vector<size_t> order(run_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const comm::BucketSizes sizes = {
        .first_bytes = limit_bytes_, .bytes = limit_bytes_, .is_limit = true};
    for (const comm::BucketPlan& bucket : comm::plan_buckets(gradients, order, sizes)) {
      ++num_buckets_;
      if (bucket.members.size() > 1) join(bucket.members);
    }
    run_.clear();
    given_.clear();
  }

  size_t num_buckets() const { return num_buckets_; }

 private:
  bool reads_run(const Node& node) const {
    return std::ranges::any_of(node.inputs(),
                               [&](const Value* input) { return given_.contains(input); });
  }

  void join(const std::vector<size_t>& members) {
    Values tensors, outputs;
    for (const size_t index : members) {
      const Node& member = *run_[index];
      tensors.insert(tensors.end(), tensors_of(member).begin(), tensors_of(member).end());
      outputs.insert(outputs.end(), member.outputs().begin(), member.outputs().end());
    }
    Node& last = *run_[std::ranges::max(members)];
    const Node::Arguments arguments = last.arguments();
    const InsertionPoint before = graph_.inserting_before(last);
    const Node& joined = insert_all_reduce(graph_, tensors, arguments[1], arguments[2]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i]->replace_all_uses_with(joined.output(i));
    }
    for (const size_t index : members) graph_.erase_node(*run_[index]);
  }

  Graph& graph_;
  int64_t limit_bytes_;
  std::vector<Node*> run_;  ///< nodes that may be joined
  ValueSet given_;          ///< by them
  size_t num_buckets_ = 0;
};

std::unordered_map<const Node*, size_t> positions_in(const Graph& graph) {
  std::unordered_map<const Node*, size_t> positions;
  for (const Node& node : graph.nodes()) positions.emplace(&node, positions.size());
  return positions;
}

/// Splits it; gives the start.
Node& split(Graph& graph, Node& all_reduce, Node* last_start) {
  const auto positions = positions_in(graph);
  const auto comes_later = [&](const Node* left, const Node* right) {
    return positions.at(left) < positions.at(right);
  };
  std::vector<Node*> before, after;
  if (last_start != nullptr) before.push_back(last_start);
  for (const Value* tensor : tensors_of(all_reduce)) before.push_back(&tensor->node());
  for (const Value* output : all_reduce.outputs()) {
    after.insert(after.end(), output->users().begin(), output->users().end());
  }
  if (after.empty()) after.push_back(&all_reduce);
  Node& newest = **std::ranges::max_element(before, comes_later);
  Node& reader = **std::ranges::min_element(after, comes_later);
  const std::vector<Argument> arguments(all_reduce.arguments().begin(),
                                        all_reduce.arguments().end());
  Node* start = nullptr;
  {
    const InsertionPoint at = graph.inserting_after(newest);
    start = &graph.call_function("levin::all_reduce_start_", arguments);
  }
  const InsertionPoint at = graph.inserting_before(reader);
  const Values started(start->outputs().begin(), start->outputs().end());
  const Node& wait = graph.call_function("levin::wait_", {started, arguments[1]});
  for (size_t i = 0; i < started.size(); ++i) {
    all_reduce.output(i).replace_all_uses_with(wait.output(i));
  }
  graph.erase_node(all_reduce);
  return *start;
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

size_t bucket_all_reduces(Graph& graph, int64_t bytes) {
  BucketBuilder builder(graph, bytes);
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    Node& node = *place++;
    if (is_all_reduce(node)) {
      builder.add(node);
    } else {
      builder.pass(node);
    }
  }
  builder.close();
  return builder.num_buckets();
}

size_t overlap_all_reduces(Graph& graph) {
  Node* last_start = nullptr;
  size_t num_split = 0;
  for (Node* all_reduce : graph.find_nodes("levin::all_reduce_")) {
    if (tensors_of(*all_reduce).empty()) continue;
    last_start = &split(graph, *all_reduce, last_start);
    ++num_split;
  }
  return num_split;
}

}  // namespace levin::graph
