#pragma once
// graph_page: a training step as one HTML file that needs nothing else: its memory over time, and
// its operators folded by module.
//
//   files::write_file_atomically("step.html", graph_page(step.graph(), "train",
//   *find_device("cpu")));

#include <string>
#include <string_view>

#include "levin/graph/graph.h"
#include "levin/graph/passes/passes.h"

namespace levin::tools {

/// Throws Error "graph.cost" for a graph whose types are not known.
std::string graph_page(const graph::Graph& graph, std::string_view title,
                       const graph::DeviceDescription& device);

/// What the page shows, as JSON; columns of the operators in their order.
std::string page_data(const graph::Graph& graph, std::string_view title,
                      const graph::DeviceDescription& device);

/// How every such page begins.
constexpr std::string_view kPageBeginning = "<!doctype html>\n<!-- levin graph -->\n";
/// Its parts.
extern const char* const kPageStyle;
extern const char* const kPageBody;
extern const char* const kPageScript;

}  // namespace levin::tools
