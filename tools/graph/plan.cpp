// levin plan PROGRAM [ARGUMENTS]: what a training step costs and holds, before it is run anywhere.
#include <CLI/CLI.hpp>

#include <iostream>
#include <string>
#include <vector>

#include "levin/graph/passes/passes.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/graph/plan_report.h"
#include "tools/graph/program_graph.h"
#include "tools/xla/tpu_advice.h"

namespace levin::tools {
namespace {

constexpr const char* kPlanHelp =
    "Prints the cost of a program's training step by phase: arithmetic, memory traffic and "
    "roofline time. Prints its peak memory by kind, the tensors alive at the peak, and whether it "
    "fits a device.\nThe program runs until it has written its first step as a graph; PROGRAM may "
    "also be a graph's .safetensors file. The time is the best that the device's data sheet "
    "allows.\nWith --tpu it prints instead how much arithmetic the step wastes on a TPU because of "
    "its sizes and dtypes, and whether it fits a core, without compiling it; `levin xla check` "
    "compiles the step.";

constexpr const char* kDefaultSlice = "v5e:2x4";

/// `--tpu v4:2x2x2 PROGRAM`: a flag takes no word of its own, as `--tpu PROGRAM` has none for it.
void take_slice(std::string& slice, std::vector<std::string>& command) {
  if (slice != kDefaultSlice || command.size() < 2 || find_tpu(command[0]) == nullptr) return;
  slice = command[0];
  command.erase(command.begin());
}

}  // namespace

int plan(int argc, char** argv) {
  CLI::App app(kPlanHelp, "levin plan");
  app.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS OF THE PROGRAM");
  app.prefix_command();
  std::string device = "cpu";
  size_t num_largest = 10;
  bool is_json = false;
  std::string slice;
  add_device_option(app, device);
  app.add_flag("--tpu{v5e:2x4}", slice,
               "print advice for a TPU slice, for example --tpu=v4:2x2x2 or --tpu=v6e; --tpu "
               "alone: v5e:2x4");
  app.add_option("--top", num_largest, "number of the largest tensors to list")
      ->capture_default_str();
  app.add_flag("--json", is_json, "print JSON; numbers in bytes and seconds");
  if (!parse_arguments(app, argc, argv, "tools.plan")) return 0;
  const graph::DeviceDescription target = device_named(device, "plan");
  std::vector<std::string> command = program_of(app, "plan");
  if (!slice.empty()) {
    take_slice(slice, command);
    const TpuSlice wanted = tpu_slice(slice);
    const TpuAdvice advice =
        advice_of(program_graph(command, /*for_xla=*/true).graph(), wanted, num_largest);
    std::cout << (is_json ? to_json(advice) : to_text(advice));
    return 0;
  }
  const graph::GraphModule step = program_graph(command);
  const Plan plan = plan_of(step.graph(), target, num_largest);
  std::cout << (is_json ? to_json(plan) : to_text(plan));
  return 0;
}

}  // namespace levin::tools
