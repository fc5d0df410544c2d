#include <ATen/core/ivalue.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/state.h"
#include "levin/comm/operators.h"
#include "levin/graph/graph.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/collective_impl.h"
#include "levin/graph/passes/passes.h"
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

/// An all-reduce for which the caller of the graph waits.
bool is_left_under_way(const Node& start) {
  return start.target() == "levin::all_reduce_start_" &&
         std::ranges::all_of(start.outputs(), [](const Value* value) {
           return std::ranges::all_of(
               value->users(), [](const Node* user) { return user->opcode() == Opcode::kOutput; });
         });
}

/// A started collective has one wait, which takes its tensors and all that it sends.
void check_started(const Graph& graph, const Names& names) {
  std::set<const Node*> waits;
  std::set<std::pair<std::string, int64_t>> under_way;
  std::map<const Node*, const Node*> starts;
  for (const StartAndWait& one : started_in(graph)) {
    if (one.wait == nullptr && is_left_under_way(*one.start)) continue;
    const std::string text = line_of(graph, *one.start, names);
    LEVIN_CHECK(one.wait != nullptr, "graph.lint",
                "got a started collective whose tensors others than one wait read, or none: {}",
                text);
    const Node& wait = *one.wait;
    const auto values = [&](size_t argument) {
      Values found;
      for_each_value(wait.arguments()[argument], [&](Value& value) { found.push_back(&value); });
      return found;
    };
    const auto collective = Collective::of(*one.start);
    const auto& outputs = one.start->outputs();
    LEVIN_CHECK(std::ranges::equal(values(0), outputs), "graph.lint",
                "got a wait for other tensors than the start gives: {}",
                line_of(graph, wait, names));
    const Values held = values(2);
    for (const Value* sent : collective->sent()) {
      LEVIN_CHECK(std::ranges::count(held, sent) > 0, "graph.lint",
                  "got a wait that does not hold a tensor that its start sends: {}",
                  line_of(graph, wait, names));
    }
    const c10::IValue& number = *constant_of(one.start->arguments().back());
    LEVIN_CHECK(number == *constant_of(wait.arguments().back()), "graph.lint",
                "got a wait with another number than its start: {}", line_of(graph, wait, names));
    starts[&wait] = one.start;
  }
  for (const Node& node : graph.nodes()) {
    if (node.opcode() != Opcode::kCallFunction) continue;
    const auto key_of = [](const Node& start) {
      return std::pair(Collective::of(start)->group_name(),
                       constant_of(start.arguments().back())->toInt());
    };
    const auto collective = Collective::of(node);
    if (collective && collective->is_start) {
      LEVIN_CHECK(under_way.insert(key_of(node)).second, "graph.lint",
                  "got a start with the number of another one that is under way: {}",
                  line_of(graph, node, names));
    } else if (info_of(node).is_wait) {
      const auto start = starts.find(&node);
      LEVIN_CHECK(start != starts.end(), "graph.lint", "got a wait without a start: {}",
                  line_of(graph, node, names));
      under_way.erase(key_of(*start->second));
    }
  }
}

/// Collectives as all ranks should run them: what differs by rank is left out.
std::vector<std::string> collectives_in(const Graph& graph, const std::string& group) {
  std::vector<std::string> lines;
  for (const Node& node : graph.nodes()) {
    const auto collective = Collective::of(node);
    if (!collective || collective->group_name() != group) continue;
    const bool is_between_two =
        collective->kind == CollectiveKind::kSend || collective->kind == CollectiveKind::kRecv;
    if (is_between_two) continue;
    std::string line = collective->name() + " " + collective->reduction();
    const bool is_exchange = collective->kind == CollectiveKind::kAllToAll;
    if (!is_exchange) line += fmt::format(" {} bytes", collective->bytes());
    for (const int64_t count : collective->counts()) line += fmt::format(" {}", count);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void lint_collectives(const Graph& graph, const comm::ProcessGroup& group) {
  graph.lint();
  const std::vector<std::string> mine = collectives_in(graph, comm::operator_name(group));
  comm::ProcessGroup ranks = group;
  std::string text;
  for (const std::string& line : mine) text += line + "\n";
  const std::vector<State> all = ranks.all_gather(State().set("collectives", text));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string& other = all[rank].text("collectives");
    if (other == text) continue;
    const std::vector<std::string> theirs = lines_of(other);
    size_t i = 0;
    while (i < mine.size() && i < theirs.size() && mine[i] == theirs[i]) ++i;
    LEVIN_FAIL("graph.collectives",
               "rank {} would run {} as its collective {} (from 0), but rank {} {}; record the "
               "same step on all ranks",
               group.rank(), i < mine.size() ? mine[i] : "nothing", i, rank,
               i < theirs.size() ? theirs[i] : "nothing");
  }
}

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
  check_started(*this, names);
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
