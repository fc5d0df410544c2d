#include <ATen/core/ivalue.h>

#include "levin/base/check.h"
#include "levin/comm/collectives/named_group.h"
#include "levin/graph/graph.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/optional_type.h"
#include "levin/graph/text/text_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

template <class List, class Item>
std::string joined(const List& list, const Item& item) {
  std::string text;
  for (const auto& element : list) text += (text.empty() ? "" : ", ") + item(element);
  return text;
}

std::string listed(at::IntArrayRef numbers) {
  return joined(numbers, [](int64_t number) { return std::to_string(number); });
}

/// Reads back as a float, not as an integer.
std::string digits(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string digits(const at::Scalar& number) {
  if (number.isBoolean()) return number.toBool() ? "true" : "false";
  if (number.isFloatingPoint()) return digits(number.toDouble());
  if (number.isIntegral(false)) return std::to_string(number.toLong());
  const auto value = number.toComplexDouble();
  return fmt::format("complex({}, {})", digits(value.real()), digits(value.imag()));
}

/// The name of the enumerator that an integer stands for.
std::string enumerator(int64_t number, const c10::Argument* parameter) {
  if (parameter == nullptr) return std::to_string(number);
  switch (without_optional(parameter->real_type())->kind()) {
    case c10::TypeKind::ScalarTypeType:
      return std::string(dtype_name(static_cast<at::ScalarType>(number)));
    case c10::TypeKind::MemoryFormatType:
      return std::string(memory_format_name(static_cast<at::MemoryFormat>(number)));
    case c10::TypeKind::LayoutType:
      return std::string(layout_name(static_cast<at::Layout>(number)));
    default:
      return std::to_string(number);
  }
}

bool is_default(const c10::Argument& parameter, const Argument& argument) {
  const c10::IValue* constant = constant_of(argument);
  if (constant == nullptr || !parameter.default_value() || constant->isTensor()) return false;
  const c10::IValue& other = *parameter.default_value();
  if (constant->isScalar() != other.isScalar() || constant->tagKind() != other.tagKind())
    return false;
  return *constant == other;
}

std::string argument_text(const Argument& argument, const c10::Argument* parameter,
                          const Names& names) {
  if (Value* const* value = std::get_if<Value*>(&argument)) return names.of(**value);
  if (const auto* values = std::get_if<Values>(&argument)) {
    const auto item = [&](const Value* value) {
      return value == nullptr ? "none" : names.of(*value);
    };
    return "[" + joined(*values, item) + "]";
  }
  return text_of(*constant_of(argument), parameter);
}

std::string arguments_of(const Node& node, const OperatorInfo& info, const Names& names) {
  std::string text;
  bool by_position = true;
  for (size_t i = 0; i < node.arguments().size(); ++i) {
    const bool is_state = i >= info.num_parameters();
    const c10::Argument* parameter = is_state ? nullptr : &info.parameters()[i];
    if (!is_state && is_default(*parameter, node.arguments()[i])) {
      by_position = false;
      continue;
    }
    by_position = by_position && !is_state && !parameter->kwarg_only();
    if (!text.empty()) text += ", ";
    if (!by_position) text += (is_state ? "rng" : parameter->name()) + "=";
    text += argument_text(node.arguments()[i], parameter, names);
  }
  return text;
}

std::string results_of(const Graph& graph, const Names& names) {
  const auto item = [&](const Value* value) {
    return value == nullptr ? "none" : names.of(*value);
  };
  std::string text = "return " + joined(graph.outputs(), item);
  for (const Update& update : graph.updates()) {
    text += fmt::format("\n{} {} = {}", update.is_gradient ? "gradient" : "update",
                        names.of(*update.target), names.of(*update.value));
  }
  return text;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter == '\n' ? ' ' : letter;
  }
  return out + "\"";
}

at::DimVector packed_strides(at::IntArrayRef sizes) {
  at::DimVector strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

std::string text_of(const ValueType& type) {
  if (type.kind == ValueKind::kUndefined) return "none";
  if (type.kind == ValueKind::kHost) return "host";
  if (type.kind == ValueKind::kRandom) return "random";
  if (type.dtype == at::ScalarType::Undefined) return "tensor";
  std::string text = fmt::format("{}[{}]", dtype_name(type.dtype), listed(type.sizes));
  if (type.strides != packed_strides(type.sizes)) text += "{" + listed(type.strides) + "}";
  if (type.device != at::kCPU) text += "@" + type.device.str();
  return text;
}

std::string text_of(const c10::IValue& constant, const c10::Argument* parameter) {
  if (constant.isNone()) return "none";
  if (constant.isInt()) return enumerator(constant.toInt(), parameter);
  if (constant.isScalar()) return digits(constant.toScalar());
  if (constant.isString()) return in_quotes(constant.toStringRef());
  if (const auto group = comm::NamedGroup::in(constant)) return in_quotes(group->name());
  if (constant.isDevice()) return constant.toDevice().str();
  if (constant.isTensor() && constant.toTensor().defined()) {
    const at::Tensor& number = constant.toTensor();
    if (number.unsafeGetTensorImpl()->is_wrapped_number()) return digits(number.item());
  }
  if (constant.isList() && !constant.isTensorList()) {
    const auto item = [&](const c10::IValue& element) { return text_of(element, nullptr); };
    return "[" + joined(constant.toListRef(), item) + "]";
  }
  return "<" + constant.tagKind() + ">";
}

std::string line_of(const Graph& graph, const Node& node, const Names& names) {
  if (node.opcode() == Opcode::kOutput) return results_of(graph, names);
  const auto name = [&](const Value* value) { return names.of(*value); };
  const auto type = [](const Value* value) { return text_of(value->type()); };
  std::string text = joined(node.outputs(), name);
  text += text.empty() ? "" : " = ";
  text += node.target();
  if (node.opcode() == Opcode::kCallFunction) {
    text += "(" + arguments_of(node, info_of(node), names) + ")";
  } else if (node.opcode() != Opcode::kRandomState) {
    text += "[" + in_quotes(node.name()) + "]";
  }
  if (!node.outputs().empty()) text += " : " + joined(node.outputs(), type);
  if (!node.source().empty()) text += "  # " + node.source();
  return text;
}

std::string to_text(const Graph& graph) {
  const Names names(graph);
  std::string text;
  for (const Node& node : graph.nodes()) text += line_of(graph, node, names) + "\n";
  return text;
}

std::string to_graphviz(const Graph& graph) {
  const Names names(graph);
  std::string text = "digraph {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (const Node& node : graph.nodes()) {
    const auto* id = static_cast<const void*>(&node);
    const bool is_input = node.inputs().empty() && node.opcode() != Opcode::kCallFunction;
    std::string label(node.name().empty() ? node.target() : node.name());
    for (const Value* value : node.outputs()) label += "\n" + text_of(value->type());
    std::string escaped;
    for (const char letter : label) {
      if (letter == '"' || letter == '\\') escaped += '\\';
      escaped += letter == '\n' ? "\\n" : std::string(1, letter);
    }
    text +=
        fmt::format("  n{} [label=\"{}\"{}];\n", id, escaped, is_input ? ", shape=ellipse" : "");
    for (const Value* input : node.inputs()) {
      text += fmt::format("  n{} -> n{} [label=\"{}\"];\n",
                          static_cast<const void*>(&input->node()), id, names.of(*input));
    }
  }
  return text + "}\n";
}

}  // namespace levin::graph
