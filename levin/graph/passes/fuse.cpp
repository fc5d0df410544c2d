#include <ATen/core/ivalue.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "levin/graph/passes/passes.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

/// A value of an argument, or nullptr.
Value* value_at(const Node& node, size_t argument) {
  Value* const* value = std::get_if<Value*>(&node.arguments()[argument]);
  return value == nullptr ? nullptr : *value;
}

/// "aten::mul" stands for all its overloads.
bool is_call_of(const Node& node, std::string_view target) {
  if (node.opcode() != Opcode::kCallFunction) return false;
  const std::string_view name = node.target();
  return name == target || name.substr(0, name.find('.')) == target;
}

/// The node that gives the argument, if it is of that operator and nobody else reads it.
Node* producer(const Node& node, size_t argument, std::string_view target) {
  const Value* value = value_at(node, argument);
  const bool is_it =
      value != nullptr && value->users().size() == 1 && is_call_of(value->node(), target);
  return is_it ? &value->node() : nullptr;
}

/// A number, as Scalar or as the tensor that `x * 2` makes of it.
std::optional<c10::Scalar> number_at(const Node& node, size_t argument) {
  const c10::IValue* constant = constant_of(node.arguments()[argument]);
  if (constant == nullptr) return {};
  if (constant->isScalar()) return constant->toScalar();
  const bool is_wrapped = constant->isTensor() && constant->toTensor().defined() &&
                          constant->toTensor().unsafeGetTensorImpl()->is_wrapped_number();
  return is_wrapped ? std::optional(constant->toTensor().item()) : std::nullopt;
}

bool has_unit_alpha(const Node& node) {
  const auto alpha = number_at(node, 2);
  return alpha && alpha->equal(1);
}

bool is_of_type(const Value* value, const ValueType& type) {
  return value != nullptr && value->type() == type;
}

bool is_floating(const ValueType& type) {
  return type.kind == ValueKind::kTensor && c10::isFloatingType(type.dtype);
}

struct Fused {
  std::string_view target;
  std::vector<Argument> arguments;
  std::vector<Node*> inner;  ///< the chain's other operators, the last first
};

using Fusion = std::optional<Fused> (*)(const Node& outer, const ValueType& type);

/// x + inner, or inner + x: the inner node and the argument that x is.
std::optional<std::pair<Node*, Value*>> sum_with(const Node& outer, std::string_view inner,
                                                 const ValueType& type) {
  if (outer.target() != "aten::add.Tensor" || !has_unit_alpha(outer)) return {};
  for (const size_t side : {1, 0}) {
    Node* node = producer(outer, side, inner);
    Value* x = value_at(outer, 1 - side);
    if (node != nullptr && is_of_type(x, type)) return std::pair(node, x);
  }
  return {};
}

/// In less than float32 the quotient would be rounded in between.
std::optional<Fused> addcdiv(const Node& outer, const ValueType& type) {
  const auto sum = sum_with(outer, "aten::div.Tensor", type);
  if (!sum || c10::isReducedFloatingType(type.dtype)) return {};
  Value *a = value_at(*sum->first, 0), *b = value_at(*sum->first, 1);
  if (!is_of_type(a, type) || !is_of_type(b, type)) return {};
  return Fused{"aten::addcdiv", {*sum->second, *a, *b}, {sum->first}};
}

std::optional<Fused> add_of_negative(const Node& outer, const ValueType& type) {
  const auto sum = sum_with(outer, "aten::neg", type);
  if (!sum || !is_of_type(value_at(*sum->first, 0), type)) return {};
  return Fused{"aten::sub.Tensor", {*sum->second, *value_at(*sum->first, 0)}, {sum->first}};
}

std::optional<Fused> sub_of_negative(const Node& outer, const ValueType& type) {
  if (outer.target() != "aten::sub.Tensor" || !has_unit_alpha(outer)) return {};
  Node* negative = producer(outer, 1, "aten::neg");
  Value* x = value_at(outer, 0);
  if (negative == nullptr || !is_of_type(x, type)) return {};
  if (!is_of_type(value_at(*negative, 0), type)) return {};
  return Fused{"aten::add.Tensor", {*x, *value_at(*negative, 0)}, {negative}};
}

std::optional<Fused> clamp(const Node& outer, const ValueType& type) {
  if (outer.target() != "aten::clamp_max") return {};
  Node* lower = producer(outer, 0, "aten::clamp_min");
  if (lower == nullptr || !is_of_type(value_at(*lower, 0), type)) return {};
  return Fused{
      "aten::clamp", {*value_at(*lower, 0), lower->arguments()[1], outer.arguments()[1]}, {lower}};
}

std::optional<Fused> addcmul(const Node& outer, const ValueType& type) {
  const auto sum = sum_with(outer, "aten::mul", type);
  if (!sum) return {};
  Value *a = value_at(*sum->first, 0), *b = value_at(*sum->first, 1);
  if (!is_of_type(a, type) || !is_of_type(b, type)) return {};
  return Fused{"aten::addcmul", {*sum->second, *a, *b}, {sum->first}};
}

std::optional<Fused> lerp(const Node& outer, const ValueType& type) {
  const auto sum = sum_with(outer, "aten::mul", type);
  if (!sum) return {};
  const auto weight = number_at(*sum->first, 1);
  Node* difference = producer(*sum->first, 0, "aten::sub.Tensor");
  if (!weight || difference == nullptr || !has_unit_alpha(*difference)) return {};
  Value* end = value_at(*difference, 0);
  if (value_at(*difference, 1) != sum->second || !is_of_type(end, type)) return {};
  return Fused{"aten::lerp.Scalar",
               {*sum->second, *end, Argument(c10::IValue(*weight))},
               {sum->first, difference}};
}

std::optional<Fused> scaled(const Node& outer, const ValueType& type) {
  const bool subtracts = outer.target() == "aten::sub.Tensor" && has_unit_alpha(outer);
  Node* product = subtracts ? producer(outer, 1, "aten::mul") : nullptr;
  Value* x = value_at(outer, 0);
  if (const auto sum = sum_with(outer, "aten::mul", type)) std::tie(product, x) = *sum;
  if (product == nullptr || !is_of_type(x, type)) return {};
  const auto factor = number_at(*product, 1);
  if (!factor || !is_of_type(value_at(*product, 0), type)) return {};
  return Fused{
      outer.target(), {*x, *value_at(*product, 0), Argument(c10::IValue(*factor))}, {product}};
}

std::optional<Fused> rsqrt(const Node& outer, const ValueType& type) {
  Node* root = outer.target() == "aten::reciprocal" ? producer(outer, 0, "aten::sqrt") : nullptr;
  if (root == nullptr || !is_of_type(value_at(*root, 0), type)) return {};
  return Fused{"aten::rsqrt", {*value_at(*root, 0)}, {root}};
}

std::optional<Fused> silu(const Node& outer, const ValueType& type) {
  if (outer.target() != "aten::mul.Tensor") return {};
  for (const size_t side : {1, 0}) {
    Node* sigmoid = producer(outer, side, "aten::sigmoid");
    Value* x = value_at(outer, 1 - side);
    if (sigmoid == nullptr || !is_of_type(x, type) || value_at(*sigmoid, 0) != x) continue;
    return Fused{"aten::silu", {*x}, {sigmoid}};
  }
  return {};
}

std::optional<Fused> addmm(const Node& outer, const ValueType& type) {
  if (outer.target() != "aten::add.Tensor" || !has_unit_alpha(outer)) return {};
  for (const size_t side : {1, 0}) {
    Node* product = producer(outer, side, "aten::mm");
    Value* bias = value_at(outer, 1 - side);
    if (product == nullptr || bias == nullptr || !is_of_type(&product->output(), type)) continue;
    const bool is_row = bias->type().sizes.size() == 1 && bias->type().sizes[0] == type.sizes[1];
    if (bias->type().dtype != type.dtype || bias->type().device != type.device) continue;
    if (!is_row && !is_of_type(bias, type)) continue;
    return Fused{"aten::addmm", {*bias, *value_at(*product, 0), *value_at(*product, 1)}, {product}};
  }
  return {};
}

struct FusionRule {
  Fusion find;
  bool is_exact;
};

constexpr std::array<FusionRule, 10> kFusionRules = {{
    {addcdiv, true},
    {add_of_negative, true},
    {sub_of_negative, true},
    {clamp, true},
    {lerp, false},
    {addcmul, false},
    {scaled, false},
    {rsqrt, false},
    {silu, false},
    {addmm, false},
}};

std::optional<Fused> find_fusion(const Node& outer, const FuseOptions& options) {
  if (outer.opcode() != Opcode::kCallFunction || outer.outputs().size() != 1) return {};
  const ValueType& type = outer.output().type();
  if (!is_floating(type)) return {};
  for (const FusionRule& rule : kFusionRules) {
    if (options.exact && !rule.is_exact) continue;
    if (auto fused = rule.find(outer, type)) return fused;
  }
  return {};
}

}  // namespace

size_t fuse(Graph& graph, const FuseOptions& options) {
  size_t num_fused = 0;
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    Node& outer = *place++;
    auto fused = find_fusion(outer, options);
    if (!fused) continue;
    const InsertionPoint before = graph.inserting_before(outer);
    Node& node = graph.call_function(fused->target, std::move(fused->arguments));
    node.output().set_type(outer.output().type());
    outer.output().replace_all_uses_with(node.output());
    graph.erase_node(outer);
    for (Node* inner : fused->inner) graph.erase_node(*inner);
    ++num_fused;
  }
  return num_fused;
}

}  // namespace levin::graph
