#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "levin/comm/collectives/named_group.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/collective_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

using std::string_view;

struct CollectiveName {
  string_view name;
  CollectiveKind kind;
  size_t group;  ///< the argument
};

constexpr std::array<CollectiveName, 8> kCollectives = {
    {{"all_reduce", CollectiveKind::kAllReduce, 1},
     {"broadcast", CollectiveKind::kBroadcast, 1},
     {"barrier", CollectiveKind::kBarrier, 1},
     {"all_gather", CollectiveKind::kAllGather, 3},
     {"reduce_scatter", CollectiveKind::kReduceScatter, 4},
     {"all_to_all", CollectiveKind::kAllToAll, 4},
     {"send", CollectiveKind::kSend, 3},
     {"recv", CollectiveKind::kRecv, 3}}};

constexpr string_view kSpace = "levin::", kStart = "_start_";

/// The target without "levin::" and its end; empty for another operator.
string_view base_of(string_view target) {
  if (!target.starts_with(kSpace)) return "";
  target.remove_prefix(kSpace.size());
  if (target.ends_with(kStart)) return target.substr(0, target.size() - kStart.size());
  return target.ends_with("_") ? target.substr(0, target.size() - 1) : "";
}

const CollectiveName& name_of(CollectiveKind kind) {
  return *std::ranges::find(kCollectives, kind, &CollectiveName::kind);
}

Values values_in(const Argument& argument) {
  Values values;
  for_each_value(argument, [&](Value& value) { values.push_back(&value); });
  return values;
}

int64_t number_of(const Node& node) { return constant_of(node.arguments().back())->toInt(); }

bool is_wait(const Node& node) { return node.target() == "levin::wait_"; }

/// Returns whether the wait is of a send, which it can only tell by what is sent.
bool is_wait_of_send(const Node& wait, const Node& start) {
  return is_wait(wait) && values_in(wait.arguments()[0]).empty() &&
         values_in(wait.arguments()[2]) == values_in(start.arguments()[0]) &&
         number_of(wait) == number_of(start);
}

}  // namespace

std::optional<Collective> Collective::of(Node& node) {
  if (node.opcode() != Opcode::kCallFunction) return std::nullopt;
  const string_view base = base_of(node.target());
  const auto known = std::ranges::find(kCollectives, base, &CollectiveName::name);
  if (base.empty() || known == kCollectives.end()) return std::nullopt;
  return Collective{&node, known->kind, node.target().ends_with(kStart)};
}

std::optional<Collective> Collective::of(const Node& node) { return of(const_cast<Node&>(node)); }

std::string Collective::name() const { return std::string(name_of(kind).name); }

const Argument& Collective::group() const { return node->arguments()[name_of(kind).group]; }

std::string Collective::group_name() const {
  const auto named = comm::NamedGroup::in(*constant_of(group()));
  return named == nullptr ? "" : named->name();
}

Values Collective::written() const {
  const bool writes = kind != CollectiveKind::kSend;
  return writes ? values_in(node->arguments()[0]) : Values();
}

Values Collective::sent() const {
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return values_in(node->arguments()[1]);
    case CollectiveKind::kSend:
      return values_in(node->arguments()[0]);
    default:
      return {};
  }
}

std::vector<int64_t> Collective::counts() const {
  const bool has_counts =
      kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
  return has_counts ? constant_of(node->arguments()[2])->toIntVector() : std::vector<int64_t>();
}

std::string Collective::reduction() const {
  const bool is_all_reduce = kind == CollectiveKind::kAllReduce;
  if (!is_all_reduce && kind != CollectiveKind::kReduceScatter) return "";
  return constant_of(node->arguments()[is_all_reduce ? 2 : 3])->toStringRef();
}

int64_t tensor_bytes(const ValueType& type) {
  if (type.kind != ValueKind::kTensor || type.dtype == at::ScalarType::Undefined) return 0;
  return c10::multiply_integers(type.sizes) * static_cast<int64_t>(c10::elementSize(type.dtype));
}

int64_t Collective::bytes() const {
  if (kind == CollectiveKind::kBarrier) return 0;
  const bool is_whole_sent =
      kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kSend;
  int64_t bytes = 0;
  for (const Value* value : is_whole_sent ? sent() : written())
    bytes += tensor_bytes(value->type());
  return bytes;
}

std::vector<StartAndWait> started_in(const Graph& graph) {
  std::vector<StartAndWait> found;
  for (const Node& node : graph.nodes()) {
    if (node.opcode() != Opcode::kCallFunction) continue;
    if (is_wait(node)) {
      for (StartAndWait& one : found) {
        const bool is_open_send = one.wait == nullptr && one.start->outputs().empty();
        if (!is_open_send || !is_wait_of_send(node, *one.start)) continue;
        one.wait = const_cast<Node*>(&node);
        break;
      }
      continue;
    }
    const auto collective = Collective::of(node);
    if (!collective || !collective->is_start) continue;
    StartAndWait one{.start = collective->node};
    if (!node.outputs().empty()) {
      const auto& users = node.output().users();
      if (users.size() == 1 && is_wait(*users.front())) one.wait = users.front();
    }
    found.push_back(one);
  }
  return found;
}

StartAndWait split(Graph& graph, const Collective& collective) {
  Node& node = *collective.node;
  std::vector<Argument> arguments(node.arguments().begin(), node.arguments().end());
  arguments.emplace_back(int64_t{0});
  StartAndWait made;
  made.start = &graph.call_function("levin::" + collective.name() + std::string(kStart), arguments);
  const Values started(made.start->outputs().begin(), made.start->outputs().end());
  made.wait = &graph.call_function("levin::wait_",
                                   {started, collective.group(), collective.sent(), int64_t{0}});
  for (size_t i = 0; i < started.size(); ++i) {
    started[i]->set_type(node.output(i).type());
    made.wait->output(i).set_type(node.output(i).type());
    node.output(i).replace_all_uses_with(made.wait->output(i));
  }
  graph.erase_node(node);
  return made;
}

void join_starts(Graph& graph) {
  for (const StartAndWait& one : started_in(graph)) {
    if (one.wait == nullptr) continue;
    const auto collective = Collective::of(*one.start);
    std::vector<Argument> arguments(one.start->arguments().begin(), one.start->arguments().end());
    arguments.pop_back();  // its number
    const bool is_gather = collective->kind == CollectiveKind::kAllGather;
    const InsertionPoint here = graph.inserting_before(is_gather ? *one.wait : *one.start);
    Node& node = graph.call_function("levin::" + collective->name() + "_", std::move(arguments));
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      node.output(i).set_type(one.wait->output(i).type());
      one.wait->output(i).replace_all_uses_with(node.output(i));
    }
    graph.erase_node(*one.wait);
    graph.erase_node(*one.start);
  }
}

void move_state_to_front(Graph& graph) {
  Graph::Nodes& nodes = graph.nodes();
  auto front = nodes.begin();
  for (auto place = nodes.begin(); place != nodes.end();) {
    const auto node = place++;
    const bool is_state = node->opcode() == Opcode::kPlaceholder ||
                          node->opcode() == Opcode::kGetAttr ||
                          node->opcode() == Opcode::kRandomState;
    if (!is_state) continue;
    if (node == front) {
      ++front;
    } else {
      nodes.splice(front, nodes, node);
    }
  }
}

void number_starts(Graph& graph) {
  std::map<const Node*, Node*> waits;
  for (const StartAndWait& one : started_in(graph)) {
    if (one.wait != nullptr) waits[one.start] = one.wait;
  }
  struct Number {
    std::set<int64_t>* taken;
    int64_t number;
  };
  std::map<std::string, std::set<int64_t>> under_way;  // by group
  std::map<const Node*, Number> numbers;               // by wait
  const auto set_number = [](Node& node, int64_t number) {
    node.set_argument(node.arguments().size() - 1, number);
  };
  for (Node& node : graph.nodes()) {
    if (const auto wait = waits.find(&node); wait != waits.end()) {
      std::set<int64_t>& taken = under_way[Collective::of(node)->group_name()];
      int64_t number = 0;
      while (taken.contains(number)) ++number;
      taken.insert(number);
      numbers[wait->second] = {&taken, number};
      set_number(node, number);
      set_number(*wait->second, number);
    } else if (const auto ended = numbers.find(&node); ended != numbers.end()) {
      ended->second.taken->erase(ended->second.number);
    }
  }
}

}  // namespace levin::graph
