#include "levin/graph/graph.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <ranges>

#include "levin/base/check.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/values.h"

namespace levin::graph {

InsertionPoint::InsertionPoint(Graph& graph, std::list<Node>::iterator place)
    : graph_(graph), before_(std::exchange(graph.place_, place)) {}

InsertionPoint::~InsertionPoint() { graph_.place_ = before_; }

Graph::Graph() {
  place_ = nodes().end();
  std::array arguments = {Argument(Values()), Argument(Values())};
  insert(Opcode::kOutput, arguments, 0);
  place_ = std::prev(nodes().end());
}

Graph::~Graph() = default;
Graph::Graph(Graph&& other) noexcept = default;
Graph& Graph::operator=(Graph&& other) noexcept = default;

Node& Graph::insert(Opcode opcode, std::span<Argument> arguments, size_t num_outputs) {
  const Place place = nodes().emplace(place_, &contents_->memory);
  Node& node = *place;
  node.place_ = place;
  node.opcode_ = opcode;
  node.arguments_.assign(std::move_iterator(arguments.begin()),
                         std::move_iterator(arguments.end()));
  node.outputs_.reserve(num_outputs);
  for (size_t i = 0; i < num_outputs; ++i) {
    Value& value = contents_->values.emplace_back();
    value.node_ = &node;
    node.outputs_.push_back(&value);
  }
  node.add_uses();
  return node;
}

Node& Graph::insert_call(const OperatorInfo& info, std::span<Argument> arguments,
                         size_t num_outputs) {
  Node& node = insert(Opcode::kCallFunction, arguments, num_outputs);
  node.info_ = &info;
  return node;
}

std::vector<Node*> Graph::find_nodes(Opcode opcode) const {
  std::vector<Node*> found;
  for (const Node& node : nodes()) {
    if (node.opcode() == opcode) found.push_back(&*node.place_);
  }
  return found;
}

std::vector<Node*> Graph::find_nodes(std::string_view target) const {
  std::vector<Node*> found;
  for (const Node& node : nodes()) {
    const std::string_view name = node.target();
    if (name == target || name.substr(0, name.find('.')) == target) found.push_back(&*node.place_);
  }
  return found;
}

std::vector<Node*> Graph::host_reads() const {
  std::vector<Node*> found;
  for (const Node& node : nodes()) {
    if (node.is_host_read()) found.push_back(&*node.place_);
  }
  return found;
}

Values Graph::outputs() const { return std::get<Values>(nodes().back().arguments()[0]); }

std::vector<Update> Graph::updates() const {
  const auto& values = std::get<Values>(nodes().back().arguments()[1]);
  std::vector<Update> updates;
  for (size_t i = 0; i < values.size(); ++i) {
    updates.push_back({targets_[i].first, values[i], targets_[i].second});
  }
  return updates;
}

void Graph::set_outputs(const Values& outputs) { output_node().set_argument(0, outputs); }

void Graph::set_updates(const std::vector<Update>& updates) {
  Values values;
  targets_.clear();
  for (const Update& update : updates) {
    targets_.emplace_back(update.target, update.is_gradient);
    values.push_back(update.value);
  }
  output_node().set_argument(1, std::move(values));
}

Value& Graph::placeholder(std::string name, ValueType type) {
  Node& node = insert(Opcode::kPlaceholder, {}, 1);
  node.name_ = std::move(name);
  node.output().set_type(std::move(type));
  return node.output();
}

Value& Graph::get_attr(std::string name, const at::Tensor& tensor) {
  for (const Node& node : nodes()) {
    LEVIN_CHECK(node.opcode() != Opcode::kGetAttr || node.name() != name, "graph.name",
                "got a second state tensor named {}, wanted another name", name);
  }
  Node& node = insert(Opcode::kGetAttr, {}, 1);
  node.name_ = std::move(name);
  node.tensor_ = tensor;
  node.output().set_type(ValueType::of(tensor));
  return node.output();
}

Value& Graph::random_state() {
  for (auto node = place_; node != nodes().begin();) {
    --node;
    if (node->opcode_ == Opcode::kRandomState) return node->output();
    if (node->is_random()) return *node->outputs_.back();
  }
  const InsertionPoint at_start(*this, nodes().begin());
  Value& state = insert(Opcode::kRandomState, {}, 1).output();
  state.set_type({.kind = ValueKind::kRandom});
  return state;
}

/// Inserts a draw between two others: later draws go on from its state.
void Graph::thread_random_state(Node& node) {
  Value& before = *std::get<Value*>(node.arguments_.back());
  Value& after = *node.outputs_.back();
  after.set_type({.kind = ValueKind::kRandom});
  const Value::Users users = before.users_;
  for (Node* user : users) {
    if (user != &node) user->replace_input_with(before, after);
  }
  if (!after.users_.empty()) return;
  std::vector<Update> all = updates();
  all.push_back({&find_nodes(Opcode::kRandomState).front()->output(), &after});
  set_updates(all);
}

InsertionPoint Graph::inserting_before(Node& node) { return {*this, node.place_}; }

InsertionPoint Graph::inserting_after(Node& node) { return {*this, std::next(node.place_)}; }

void Graph::erase_node(Node& node) {
  LEVIN_CHECK(node.opcode_ != Opcode::kOutput, "graph.erase",
              "got the output node, wanted another node; every graph ends with its output node");
  for (const Value* value : node.outputs_) {
    LEVIN_CHECK(value->users().empty(), "graph.erase",
                "{} has a result that {} uses; replace its uses first", node.target(),
                value->users().front()->target());
    const auto is_target = [&](const auto& target) { return target.first == value; };
    LEVIN_CHECK(std::ranges::none_of(targets_, is_target), "graph.erase",
                "{} {} is updated by the graph; set other updates first", node.target(),
                node.name());
  }
  node.remove_uses();
  if (place_ == node.place_) ++place_;
  nodes().erase(node.place_);
}

size_t Graph::eliminate_dead_code() {
  size_t num_erased = 0;
  for (auto place = nodes().end(); place != nodes().begin();) {
    Node& node = *--place;
    const bool is_used = std::ranges::any_of(
        node.outputs_, [](const Value* value) { return !value->users().empty(); });
    // Other ranks may wait for a collective.
    const bool stays =
        node.opcode_ != Opcode::kCallFunction || node.outputs_.empty() || node.info_->is_collective;
    if (is_used || stays || node.is_host_read()) continue;
    ++place;
    erase_node(node);
    ++num_erased;
  }
  return num_erased;
}

Graph Graph::clone() const {
  Graph copy;
  std::map<const Value*, Value*> values = {{nullptr, nullptr}};
  const auto twin_of = [&](const Value* value) {
    const auto twin = values.find(value);
    LEVIN_CHECK(twin != values.end(), "graph.lint",
                "an argument or a target is a value that no earlier node gives");
    return twin->second;
  };
  const auto copied = [&](Argument argument) {
    if (Value** value = std::get_if<Value*>(&argument)) *value = twin_of(*value);
    if (auto* list = std::get_if<Values>(&argument)) {
      for (Value*& value : *list) value = twin_of(value);
    }
    return argument;
  };
  for (const Node& node : nodes()) {
    std::vector<Argument> arguments;
    for (const Argument& argument : node.arguments_) arguments.push_back(copied(argument));
    if (node.opcode_ == Opcode::kOutput) {
      copy.output_node().remove_uses();
      copy.output_node().arguments_.assign(std::move_iterator(arguments.begin()),
                                           std::move_iterator(arguments.end()));
      copy.output_node().add_uses();
      break;
    }
    Node& made = copy.insert(node.opcode_, arguments, node.outputs_.size());
    made.info_ = node.info_;
    made.name_ = node.name_;
    made.tensor_ = node.tensor_;
    made.source_ = node.source_;
    made.host_read_ = node.host_read_;
    for (size_t i = 0; i < node.outputs_.size(); ++i) {
      made.outputs_[i]->type_ = node.outputs_[i]->type_;
      values[node.outputs_[i]] = made.outputs_[i];
    }
  }
  for (const auto& [target, is_gradient] : targets_) {
    copy.targets_.emplace_back(twin_of(target), is_gradient);
  }
  copy.has_claimed_types_ = has_claimed_types_;
  return copy;
}

}  // namespace levin::graph
