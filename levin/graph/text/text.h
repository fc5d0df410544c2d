#pragma once
// A graph as text, for people and for files, and as Graphviz.
//
//   std::puts(levin::graph::to_text(module.graph()).c_str());
//   // %x = placeholder["x"] : f32[8, 784]
//   // %weight = get_attr["weight"] : f32[128, 784]
//   // %t = aten::t(%weight) : f32[784, 128]{1, 784}
//   // %mm = aten::mm(%x, %t) : f32[8, 128]
//   // return %mm

#include <string>
#include <string_view>

#include "levin/graph/graph.h"

namespace levin::graph {

/// One line a node; arguments that have the schema's default value are left out, strides where they
/// are those of a contiguous tensor, the device where it is the CPU.
LEVIN_API std::string to_text(const Graph& graph);
/// What to_text gives, read back; state tensors are to be bound. Throws Error "graph.parse", with
/// the line.
LEVIN_API Graph parse(std::string_view text);
/// For `dot -Tsvg`: operators as boxes, inputs and state as ellipses.
LEVIN_API std::string to_graphviz(const Graph& graph);

}  // namespace levin::graph
