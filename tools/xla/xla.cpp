// levin xla check PROGRAM [ARGUMENTS]: compiles a training step for TPUs that are not there.
#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/xla/pjrt/topology.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/graph/program_graph.h"
#include "tools/xla/tpu.h"
#include "tools/xla/xla_check.h"

namespace levin::tools {
namespace {

constexpr const char* kXlaHelp =
    "usage: levin xla check [OPTIONS] PROGRAM [ARGUMENTS OF THE PROGRAM]\n\n  check    compile a "
    "program's training step for TPUs; no TPU is needed\n\n  levin xla check --help lists its "
    "options\n";

constexpr const char* kCheckHelp =
    "Compiles a program's training step for TPUs with libtpu's compiler; no TPU is needed. For "
    "each topology it prints the memory, arithmetic and communication of a core. If the step does "
    "not fit, the exit code is 1.\nThe program runs on the CPU until it has written its first step "
    "as a graph; PROGRAM may also be a graph's .safetensors file. Each core gets a batch of the "
    "program's batch size, as in training on it.\nlibtpu is Google's and not part of levin: `make "
    "libtpu` or `pip install libtpu` fetches it.";

struct CheckFlags {
  std::vector<std::string> topologies = {"v5e:2x4"};
  std::string libtpu;
  size_t num_largest = 10;
  bool is_all = false, is_json = false;
};

void add_check_flags(CLI::App& app, CheckFlags& flags) {
  auto* const topology =
      app.add_option(
             "--topology", flags.topologies,
             fmt::format(
                 "TPU generation and chips of the slice; several separated by commas. Tested: {}",
                 fmt::join(xla::pjrt::known_topologies(), ", ")))
          ->delimiter(',')
          ->allow_extra_args(false)
          ->capture_default_str()
          ->type_name("");
  app.add_flag("--all", flags.is_all, "compile for all of these topologies")->excludes(topology);
  app.add_option("--libtpu", flags.libtpu,
                 "path of libtpu.so; default: LEVIN_LIBTPU, or else the first found where PJRT "
                 "plugins are searched")
      ->type_name("FILE");
  app.add_option("--top", flags.num_largest, "number of the largest tensors to list")
      ->capture_default_str();
  app.add_flag("--json", flags.is_json, "print JSON; numbers in bytes and seconds");
}

std::string libtpu_file(const std::string& given) {
  xla::pjrt::find_plugin("/");  // whether there are plugins at all in this build
  const char* named = std::getenv("LEVIN_LIBTPU");
  if (!given.empty()) return given;
  if (named != nullptr && *named != '\0') return named;
  try {
    return xla::pjrt::find_plugin("tpu");
  } catch (const Error& error) {
    if (error.id() != "xla.plugin.absent") throw;
    LEVIN_FAIL("tools.xla",
               "found no libtpu, whose compiler this command needs; fetch it with `make libtpu` or "
               "`pip install libtpu` (a download of 213 MB under Google's licence), or name "
               "libtpu.so with --libtpu or LEVIN_LIBTPU");
  }
}

/// The topologies first, which costs less than to run the program for a name that is none.
int check(const CheckFlags& flags, const std::vector<std::string>& command) {
  const xla::pjrt::Plugin libtpu(libtpu_file(flags.libtpu), {.compile_only = true});
  std::vector<xla::pjrt::Topology> topologies;
  for (const std::string& name : flags.topologies) topologies.emplace_back(libtpu, name);
  const graph::GraphModule step = program_graph(command, /*for_xla=*/true);
  std::vector<CheckedStep> checks;
  for (const xla::pjrt::Topology& topology : topologies) {
    checks.push_back(check_step(step.graph(), topology));
  }
  const graph::DeviceDescription cpu = *graph::find_device("cpu");
  const Plan plan = plan_of(step.graph(), cpu, flags.num_largest);
  std::cout << (flags.is_json ? to_json(checks, plan) : to_text(checks, plan));
  return std::ranges::all_of(checks, &CheckedStep::fits) ? 0 : 1;
}

}  // namespace

int xla(int argc, char** argv) {
  const std::string_view action = argc > 1 ? argv[1] : "--help";
  if (action == "--help" || action == "-h") {
    std::cout << kXlaHelp;
    return argc > 1 ? 0 : 2;
  }
  LEVIN_CHECK(action == "check", "tools.xla", "got '{}', wanted check; see levin xla --help",
              action);
  CLI::App app(kCheckHelp, "levin xla check");
  app.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS OF THE PROGRAM");
  app.prefix_command();
  CheckFlags flags;
  add_check_flags(app, flags);
  if (!parse_arguments(app, argc - 1, argv + 1, "tools.xla")) return 0;
  if (flags.is_all) {
    const auto known = xla::pjrt::known_topologies();
    flags.topologies.assign(known.begin(), known.end());
  }
  return check(flags, program_of(app, "xla"));
}

}  // namespace levin::tools
