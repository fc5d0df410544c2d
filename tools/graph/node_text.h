#pragma once
// node_text: the lines of graph::to_text taken apart, so that reports name values and types as it
// does; and numbers in units.
//
//   texts_of(graph).at(&node).types[0];  // "f32[8, 128]"
//   in_units(1.5e9, "B");                // "1.50 GB"

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/graph/graph.h"

namespace levin::tools {

struct NodeText {
  std::string line;
  std::vector<std::string> names;  ///< of its outputs, as "%relu_1"
  std::vector<std::string> types;
};

/// Of all nodes but the graph's output.
std::unordered_map<const graph::Node*, NodeText> texts_of(const graph::Graph& graph);

/// Three digits and a factor of 1000: "12.3 GFLOP", "45.6 us", "940 kB".
std::string in_units(double number, std::string_view unit);

}  // namespace levin::tools
