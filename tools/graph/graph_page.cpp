#include "tools/graph/graph_page.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "tools/graph/node_text.h"
#include "tools/graph/step_outline.h"

namespace levin::tools {
namespace {

using graph::Node;
using graph::Opcode;
using PageJson = nlohmann::ordered_json;

double page_bytes_of(const graph::ValueType& type) {
  return std::accumulate(type.sizes.begin(), type.sizes.end(), 1.0, std::multiplies()) *
         static_cast<double>(c10::elementSize(type.dtype));
}

/// One list for each property of the operators: a third of the bytes of one object each.
class Columns {
 public:
  Columns(const graph::Graph& step, const graph::GraphCost& cost) : step_(step) {
    for (const graph::NodeCost& one : cost.nodes) costs_[one.node] = &one;
  }

  PageJson run() {
    for (const graph::LiveValue& live : memory_.alive_at_peak) add_held(live);
    for (const Node& node : step_.nodes()) {
      const int64_t bytes = memory_.bytes[place_++];
      if (node.opcode() == Opcode::kCallFunction) add_operator(node, bytes);
    }
    return {{"held", held_}, {"modules", modules_}, {"operators", columns_}};
  }

  const StepOutline& outline() const { return outline_; }
  int64_t peak_bytes() const { return memory_.peak_bytes; }

 private:
  /// Adds values that are alive from the first operator to the last, and so at the peak.
  void add_held(const graph::LiveValue& live) {
    const Node& node = live.value->node();
    if (node.opcode() == Opcode::kCallFunction) return;
    if (is_old_gradient(node)) {
      gradient_bytes_ += static_cast<double>(live.bytes);
      return;
    }
    const bool is_input = node.opcode() == Opcode::kPlaceholder;
    const bool is_parameter = outline_.parameters.contains(&node);
    held_[is_input ? "inputs" : (is_parameter ? "parameters" : "state")] += live.bytes;
  }

  void add_operator(const Node& node, int64_t bytes) {
    const Role& role = outline_.roles.at(&node);
    const NodeText& text = texts_.at(&node);
    const auto cost = costs_.find(&node);
    const bool is_view = cost == costs_.end();
    gradient_bytes_ += new_gradient_bytes(node);
    columns_["phase"].push_back(static_cast<int>(role.phase));
    columns_["module"].push_back(number_of(role.module));
    columns_["target"].push_back(node.target());
    columns_["name"].push_back(text.names.empty() ? "" : text.names[0]);
    columns_["type"].push_back(text.types.empty() ? "" : text.types[0]);
    columns_["line"].push_back(text.line);
    columns_["view"].push_back(is_view ? 1 : 0);
    columns_["flops"].push_back(is_view ? 0.0 : cost->second->flops);
    columns_["bytes"].push_back(is_view ? 0.0 : cost->second->bytes);
    columns_["seconds"].push_back(is_view ? 0.0 : cost->second->seconds);
    columns_["memory"].push_back(bytes);
    columns_["gradients"].push_back(gradient_bytes_);
  }

  /// A gradient that is added to that of the step before needs no bytes of its own.
  double new_gradient_bytes(const Node& node) const {
    const auto is_old = [](const graph::Value* input) {
      return input != nullptr && is_old_gradient(input->node());
    };
    if (std::ranges::any_of(node.inputs(), is_old)) return 0.0;
    double bytes = 0.0;
    for (const graph::Value* output : node.outputs()) {
      if (outline_.gradients.contains(output)) bytes += page_bytes_of(output->type());
    }
    return bytes;
  }

  size_t number_of(const std::string& module) {
    const auto [found, is_new] = numbers_.emplace(module, modules_.size());
    if (is_new) modules_.push_back(module);
    return found->second;
  }

  const graph::Graph& step_;
  const StepOutline outline_ = outline_of(step_);
  const graph::MemoryProfile memory_ = graph::memory_of(step_);
  const std::unordered_map<const Node*, NodeText> texts_ = texts_of(step_);
  std::unordered_map<const Node*, const graph::NodeCost*> costs_;
  size_t place_ = 0;
  double gradient_bytes_ = 0.0;  ///< of those that are there by now
  std::map<std::string, int64_t> held_ = {{"inputs", 0}, {"parameters", 0}, {"state", 0}};
  std::map<std::string, size_t> numbers_;
  std::vector<std::string> modules_;
  PageJson columns_ = PageJson::object();
};

std::string escaped(std::string_view text) {
  std::string html;
  for (const char letter : text) {
    if (letter == '<') {
      html += "&lt;";
    } else if (letter == '&') {
      html += "&amp;";
    } else {
      html += letter;
    }
  }
  return html;
}

}  // namespace

std::string page_data(const graph::Graph& graph, std::string_view title,
                      const graph::DeviceDescription& device) {
  const graph::GraphCost cost = graph::cost_of(graph, device);
  Columns columns(graph, cost);
  PageJson data = columns.run();
  data["title"] = title;
  data["device"] = device.name;
  data["totals"] = {{"operators", cost.nodes.size()},
                    {"parameters", num_parameters(columns.outline())},
                    {"flops", cost.flops},
                    {"bytes", cost.bytes},
                    {"seconds", cost.seconds},
                    {"peak", columns.peak_bytes()}};
  return data.dump();
}

std::string graph_page(const graph::Graph& graph, std::string_view title,
                       const graph::DeviceDescription& device) {
  std::string data = page_data(graph, title, device);
  for (size_t at = 0; (at = data.find('<', at)) != std::string::npos;) {
    data.replace(at, 1, "\\u003c");  // nothing in it may end the element
  }
  return fmt::format(
      "{}<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n"
      "<style>{}</style>\n{}<script id=\"data\" type=\"application/json\">{}</script>\n"
      "<script>{}</script>\n</html>\n",
      kPageBeginning, escaped(title), kPageStyle, kPageBody, data, kPageScript);
}

}  // namespace levin::tools
