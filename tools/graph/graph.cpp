// levin graph PROGRAM [ARGUMENTS]: the graph of a training step to read: text, Graphviz, a page.
#include "levin/graph/graph.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/files/atomic.h"
#include "levin/files/folder.h"
#include "levin/files/writing/output.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/graph/graph_page.h"
#include "tools/graph/program_graph.h"

namespace levin::tools {
namespace {

constexpr const char* kGraphHelp =
    "Prints the graph of a program's training step as text, one line per operator, or for "
    "Graphviz. Or writes an HTML page that shows the graph folded by module, with the memory over "
    "time.\nThe program runs until it has written its first step as a graph; PROGRAM may also be a "
    "graph's .safetensors file. The options may come after the program; everything after -- "
    "belongs to the program.";

struct GraphFlags {
  std::string device = "cpu", page;
  bool is_text = false, is_dot = false;
};

void write_page(const graph::Graph& graph, const std::string& title, const GraphFlags& flags) {
  const graph::DeviceDescription device = device_named(flags.device, "graph");
  const std::filesystem::path path = files::absolute_path(flags.page);
  files::check_own(path, kPageBeginning);
  files::write_file_atomically(path, graph_page(graph, title, device));
  std::cout << path.string() << '\n';
}

void add_graph_flags(CLI::App& app, GraphFlags& flags) {
  auto* const page = app.add_option("--html", flags.page, "write an HTML page to this file")
                         ->type_name("FILE.html");
  auto* const text =
      app.add_flag("--text", flags.is_text, "print the graph as text; this is the default");
  app.add_flag("--dot", flags.is_dot, "print the graph for Graphviz: dot -Tsvg")
      ->excludes(text)
      ->excludes(page);
  text->excludes(page);
  add_device_option(app, flags.device);
}

}  // namespace

int graph(int argc, char** argv) {
  CLI::App app(kGraphHelp, "levin graph");
  app.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS OF THE PROGRAM");
  app.allow_extras();
  GraphFlags flags;
  add_graph_flags(app, flags);
  if (!parse_arguments(app, argc, argv, "tools.graph")) return 0;
  // A forgotten name would have the page written over the program.
  LEVIN_CHECK(flags.page.empty() || flags.page.ends_with(".html"), "tools.graph",
              "--html: got '{}', wanted a file whose name ends in .html", flags.page);
  std::vector<std::string> command = program_of(app, "graph");
  const auto mark = std::ranges::find(command, "--");
  if (mark != command.end()) command.erase(mark);
  const graph::GraphModule step = program_graph(command);
  if (!flags.page.empty()) {
    write_page(step.graph(), std::filesystem::path(command[0]).stem().string(), flags);
  } else {
    std::cout << (flags.is_dot ? graph::to_graphviz(step.graph()) : graph::to_text(step.graph()));
  }
  return 0;
}

}  // namespace levin::tools
