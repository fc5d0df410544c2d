// levin plan PROGRAM [ARGUMENTS]: what a training step costs and holds, before it is run anywhere.
#include <CLI/CLI.hpp>

#include <iostream>
#include <string>

#include "levin/graph/cost.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/plan_report.h"
#include "tools/program_graph.h"

namespace levin::tools {
namespace {

constexpr const char* kPlanHelp =
    "Prints the arithmetic, the memory traffic and a roofline time of a program's training step by "
    "phase, its peak of memory by kind, what is alive then, and whether it fits a device.\n"
    "The program runs until it has written its first step as a graph; a graph's .safetensors file "
    "does as well. The time is what the device's data sheet allows at best.";

}  // namespace

int plan(int argc, char** argv) {
  CLI::App app(kPlanHelp, "levin plan");
  app.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS OF THE PROGRAM");
  app.prefix_command();
  std::string device = "cpu";
  size_t num_largest = 10;
  bool is_json = false;
  add_device_option(app, device);
  app.add_option("--top", num_largest, "how many of the largest tensors to list")
      ->capture_default_str()
      ->type_name("");
  app.add_flag("--json", is_json, "for other programs to read; numbers in bytes and seconds");
  if (!parse_arguments(app, argc, argv, "tools.plan")) return 0;
  const graph::DeviceDescription target = device_named(device, "plan");
  const graph::GraphModule step = program_graph(program_of(app, "plan"));
  const Plan plan = plan_of(step.graph(), target, num_largest);
  std::cout << (is_json ? to_json(plan) : to_text(plan));
  return 0;
}

}  // namespace levin::tools
