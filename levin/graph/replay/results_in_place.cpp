#include "levin/graph/replay/results_in_place.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "levin/graph/operator_info.h"
#include "levin/graph/replay/memory_plan.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

bool calls_operator(const Node& node, std::string_view target) {
  return node.opcode() == Opcode::kCallFunction && node.target() == target;
}

bool lie_the_same(const ValueType& left, const ValueType& right) {
  if (left.kind != ValueKind::kTensor || right.kind != ValueKind::kTensor) return false;
  if (left.sizes != right.sizes || left.dtype != right.dtype || left.device != right.device) {
    return false;
  }
  for (size_t dim = 0; dim < left.sizes.size(); ++dim) {
    if (left.sizes[dim] > 1 && left.strides[dim] != right.strides[dim]) return false;
  }
  return true;
}

class PlaceFinder {
 public:
  PlaceFinder(const Graph& graph, const InPlaceWrites& in_place) : in_place_(in_place) {
    for (const Node& node : graph.nodes()) {
      numbers_[&node] = nodes_.size();
      nodes_.push_back(&node);
    }
    for (const Value* value : graph.outputs()) left_.insert(value);
    for (const Update& update : graph.updates()) left_.insert(update.value);
  }

  std::unordered_map<const Value*, ResultPlace> run() {
    std::unordered_map<const Value*, ResultPlace> found;
    for (const Node* node : nodes_) {
      if (!calls_operator(*node, "aten::copy_")) continue;
      const Value& result = *node->input(1);
      if (auto place = place_by(*node); place && may_be_computed_there(result, *place)) {
        found.emplace(&result, std::move(*place));
      }
    }
    return found;
  }

 private:
  /// New memory that a value is all of, if writes to it are done in place.
  const Value* whole_of(const Value* value) const {
    while (in_place_.scatters.contains(&value->node())) value = value->node().input(0);
    const Node& maker = value->node();
    const bool is_new = maker.opcode() == Opcode::kCallFunction && info_of(maker).makes_unwritten &&
                        maker.inputs().empty();
    return is_new && in_place_.wholes.contains(value) ? value : nullptr;
  }

  /// The part of new memory that as_strided shows.
  std::optional<ResultPlace> part_of(const Value& view) const {
    const Node& node = view.node();
    if (!calls_operator(node, "aten::as_strided")) return std::nullopt;
    const Value* whole = whole_of(node.input(0));
    const c10::IValue* offset = constant_of(node.arguments()[3]);
    if (whole == nullptr || offset == nullptr || !offset->isInt()) return std::nullopt;
    const ValueType& type = view.type();
    return ResultPlace{.whole = whole,
                       .sizes = {type.sizes.begin(), type.sizes.end()},
                       .strides = {type.strides.begin(), type.strides.end()},
                       .offset = offset->toInt()};
  }

  std::optional<ResultPlace> place_by(const Node& copy) const {
    const Value& view = *copy.input(0);
    if (!in_place_.written.contains(&view)) return std::nullopt;
    auto place = part_of(view);
    if (!place) return std::nullopt;
    const ValueType& type = view.type();
    const auto bytes = place->offset * static_cast<int64_t>(c10::elementSize(type.dtype));
    const bool fits = type.device.is_cpu() && bytes % kHostAlignment == 0 &&
                      lie_the_same(type, copy.input(1)->type());
    if (!fits) return std::nullopt;
    place->copy = &copy;
    return place;
  }

  bool may_be_computed_there(const Value& result, const ResultPlace& place) const {
    const Node& maker = result.node();
    if (maker.opcode() != Opcode::kCallFunction || maker.outputs().size() != 1) return false;
    const OperatorInfo& info = info_of(maker);
    const bool is_plain = info.written.empty() && !info.makes_view() && !info.is_random &&
                          !info.makes_unwritten && !info.is_host_read && !info.is_collective;
    if (!is_plain || result.users().size() != 1 || left_.contains(&result)) return false;
    const Values inputs = maker.inputs();
    if (inputs.empty()) return false;
    for (size_t i = numbers_.at(&maker); i < numbers_.at(place.copy); ++i) {
      if (!leaves_alone(*nodes_[i], place)) return false;
    }
    return true;
  }

  /// Returns whether the node reads and writes nothing at the place.
  bool leaves_alone(const Node& node, const ResultPlace& place) const {
    if (node.opcode() != Opcode::kCallFunction || in_place_.scatters.contains(&node) ||
        calls_operator(node, "aten::as_strided")) {
      return true;
    }
    return std::ranges::all_of(node.inputs(), [&](const Value* input) {
      if (input == nullptr) return true;
      if (whole_of(input) == place.whole) return false;
      const auto part = part_of(*input);
      return !part || part->whole != place.whole || is_apart(*part, place);
    });
  }

  static bool is_apart(const ResultPlace& left, const ResultPlace& right) {
    return end_of(left) <= right.offset || end_of(right) <= left.offset;
  }
  static int64_t end_of(const ResultPlace& place) {
    int64_t last = place.offset;
    for (size_t dim = 0; dim < place.sizes.size(); ++dim) {
      if (place.sizes[dim] == 0) return place.offset;
      last += (place.sizes[dim] - 1) * place.strides[dim];
    }
    return last + 1;
  }

  const InPlaceWrites& in_place_;
  std::vector<const Node*> nodes_;
  std::unordered_map<const Node*, size_t> numbers_;
  std::unordered_set<const Value*> left_;  ///< read when the graph has run
};

}  // namespace

std::unordered_map<const Value*, ResultPlace> results_in_place(const Graph& graph,
                                                               const InPlaceWrites& in_place) {
  return PlaceFinder(graph, in_place).run();
}

}  // namespace levin::graph
