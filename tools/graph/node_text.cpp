#include "tools/graph/node_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <sstream>
#include <utility>

#include "levin/graph/graph.h"

namespace levin::tools {
namespace {

/// Apart at the commas that stand in no brackets.
std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      items.emplace_back(text.substr(begin, i - begin));
      begin = i + 2;
    } else if (text[i] == '[' || text[i] == '{') {
      ++depth;
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    }
  }
  return items;
}

NodeText text_of_node(const graph::Node& node, std::string line) {
  NodeText text{.line = std::move(line)};
  if (node.outputs().empty()) return text;
  const std::string_view whole = text.line;
  const size_t comment = node.source().empty() ? whole.size() : whole.rfind("  # ");
  const size_t types = whole.rfind(" : ", comment);
  text.names = split_list(whole.substr(0, whole.find(" = ")));
  text.types = split_list(whole.substr(types + 3, comment - types - 3));
  return text;
}

}  // namespace

std::unordered_map<const graph::Node*, NodeText> texts_of(const graph::Graph& graph) {
  std::unordered_map<const graph::Node*, NodeText> texts;
  std::istringstream lines(graph::to_text(graph));
  for (const graph::Node& node : graph.nodes()) {
    if (node.opcode() == graph::Opcode::kOutput) break;
    std::string line;
    std::getline(lines, line);
    texts.emplace(&node, text_of_node(node, std::move(line)));
  }
  return texts;
}

std::string in_units(double number, std::string_view unit) {
  if (number == 0.0) return unit.empty() ? "0" : fmt::format("0 {}", unit);
  constexpr std::array kPrefixes = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E"};
  constexpr int kNone = 3;
  int power = static_cast<int>(std::floor(std::log10(std::abs(number)) / 3.0 + 1e-9));
  double scaled = number / std::pow(1000.0, power);
  if (std::abs(scaled) >= 999.5) {  // it would read 1000
    scaled /= 1000.0;
    ++power;
  }
  power = std::clamp(power, -kNone, static_cast<int>(kPrefixes.size()) - 1 - kNone);
  const std::string prefix = *std::next(kPrefixes.begin(), kNone + power);
  const bool is_whole = power == 0 && scaled == std::floor(scaled);
  const int digits = is_whole || scaled >= 99.95 ? 0 : (scaled >= 9.995 ? 1 : 2);
  const std::string with_unit = prefix + std::string(unit);
  return fmt::format("{:.{}f}{}{}", scaled, digits, with_unit.empty() ? "" : " ", with_unit);
}

}  // namespace levin::tools
