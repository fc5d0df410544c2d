#pragma once
// Writes a graph as text, line by line.

#include <string>
#include <string_view>
#include <unordered_map>

#include "levin/graph/graph.h"

namespace c10 {
struct Argument;
}  // namespace c10

namespace levin::graph {

/// A unique name for each value: "%relu_1".
class Names {
 public:
  explicit Names(const Graph& graph);
  /// "%?" for a value of another graph.
  const std::string& of(const Value& value) const;

 private:
  void give(const Value& value, std::string name);
  std::unordered_map<const Value*, std::string> names_;
  std::unordered_map<std::string, int64_t> counts_;
  std::string unknown_ = "%?";
};

std::string line_of(const Graph& graph, const Node& node, const Names& names);
std::string text_of(const ValueType& type);
/// A constant that no text stands for (a generator, a custom class) is written as <its type>.
std::string text_of(const c10::IValue& constant, const c10::Argument* parameter);
std::string in_quotes(std::string_view text);

std::string_view dtype_name(at::ScalarType dtype);
std::optional<at::ScalarType> dtype_named(std::string_view name);
std::string_view memory_format_name(at::MemoryFormat format);
std::optional<at::MemoryFormat> memory_format_named(std::string_view name);
std::string_view layout_name(at::Layout layout);
std::optional<at::Layout> layout_named(std::string_view name);
at::DimVector packed_strides(at::IntArrayRef sizes);

}  // namespace levin::graph
