// levin plan PROGRAM [ARGUMENTS]: what a training step costs and holds, before it is run anywhere.
#include <CLI/CLI.hpp>

#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/passes/passes.h"
#include "levin/strategy/forecast/automatic.h"
#include "levin/strategy/forecast/forecast.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/graph/forecast_report.h"
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
    "compiles the step.\nWith --strategy, --compare or --fits it forecasts the step on a cluster, "
    "and "
    "needs none: the step is recorded of a model without memory, and nothing is computed. It "
    "prints the memory of a rank by kind, the collectives with their bytes and times, the time of "
    "a step and the samples or tokens a second.";

constexpr const char* kDefaultSlice = "v5e:2x4";

/// `--tpu v4:2x2x2 PROGRAM`: a flag takes no word of its own, as `--tpu PROGRAM` has none for it.
void take_slice(std::string& slice, std::vector<std::string>& command) {
  if (slice != kDefaultSlice || command.size() < 2 || find_tpu(command[0]) == nullptr) return;
  slice = command[0];
  command.erase(command.begin());
}

struct ForecastOptions {
  std::string strategy;
  std::string mesh;
  std::string precision;
  std::string cluster = "h100";
  std::string fits;
  bool compare = false;

  bool is_asked() const { return !strategy.empty() || compare || !fits.empty(); }
  bool is_automatic() const { return strategy == "auto"; }
};

void add_forecast_options(CLI::App& app, ForecastOptions& options) {
  app.add_option(
      "--strategy", options.strategy,
      "forecast this strategy: single, ddp, zero1, zero2, zero3 or fsdp; auto: the one that "
      "a run with --strategy auto takes, with the memory of --fits or of the cluster");
  app.add_option(
      "--mesh", options.mesh,
      "ranks of the forecast: dp=64, or dp=64,fsdp=8 (sharded over 8 ranks, 64 replicas)");
  app.add_option("--precision", options.precision,
                 "precision of the forecast step, as of the Trainer; the program's by default");
  app.add_option("--cluster", options.cluster,
                 "cluster of the forecast: cpu, a100, h100, h200 (nodes of 8), or a TOML file that "
                 "levin env --measure has written")
      ->capture_default_str();
  app.add_flag("--compare", options.compare, "forecast all strategies on the mesh, as a table");
  app.add_option("--fits", options.fits,
                 "the fastest strategy whose memory fits a device, for example 80GB");
}

/// Memory of a rank for what a run keeps, without the process itself.
double memory_of_rank(const ForecastOptions& options, const forecast::Cluster& cluster) {
  if (!options.fits.empty()) return bytes_of_text(options.fits);
  const auto ranks = static_cast<double>(cluster.is_cpu() ? cluster.ranks_per_node : 1);
  LEVIN_CHECK(cluster.memory_bytes > 0.0, "tools.plan",
              "got --strategy auto with cluster '{}', which has no memory_bytes; set --fits",
              cluster.name);
  return cluster.memory_bytes / ranks - cluster.runtime_bytes;
}

/// Prints the choice of --strategy auto, and the forecast of what it chose.
void print_automatic(const ForecastOptions& options, const forecast::Cluster& cluster,
                     const forecast::RecordedStep& step, const PlannedProgram& program,
                     size_t num_listed, bool is_json) {
  const forecast::Mesh mesh = forecast::mesh_of(options.mesh);
  std::vector<forecast::Setting> settings = forecast::automatic_settings(mesh.size());
  if (mesh.shard > 1)
    std::erase_if(settings, [](const auto& each) { return each.name() == "ddp"; });
  for (forecast::Setting& setting : settings) {
    if (mesh.shard > 1) setting.mesh = mesh;
  }
  const double memory = memory_of_rank(options, cluster);
  const forecast::AutomaticChoice choice =
      forecast::choose_unrecorded(program.description, step.state_bytes, settings, cluster, memory);
  const forecast::Forecast chosen =
      forecast::forecast_of(step, program.description, settings[choice.chosen], cluster);
  const forecast::Choice said{.best = choice.fits ? std::optional<size_t>(0) : std::nullopt,
                              .reason = "strategy auto: " + choice.reason};
  if (is_json) {
    std::cout << to_json({chosen}, program.description, cluster, &said);
  } else {
    std::cout << to_text(chosen, program.description, cluster, num_listed) << said.reason << "\n";
  }
  LEVIN_CHECK(choice.fits, "tools.plan.fits", "{}", said.reason);
}

/// Forecasts the program's step and prints it.
void print_forecast(const ForecastOptions& options, const std::vector<std::string>& command,
                    size_t num_listed, bool is_json) {
  const forecast::Cluster cluster = forecast::read_cluster(options.cluster);
  const forecast::Mesh mesh = forecast::mesh_of(options.mesh);
  std::vector<forecast::Setting> settings;
  const bool is_table = options.compare || !options.fits.empty();
  if (!options.strategy.empty() && !options.is_automatic()) {
    settings.push_back(forecast::setting_of(options.strategy, mesh));
  } else {
    settings = forecast::candidates(mesh.size(), cluster);
  }
  const double limit = options.fits.empty() ? 0.0 : bytes_of_text(options.fits);
  const PlannedProgram program = planned_program(command, options.precision);
  const forecast::RecordedStep step =
      forecast::recorded_step(program.step.graph(), program.description);
  if (options.is_automatic()) {
    return print_automatic(options, cluster, step, program, num_listed, is_json);
  }
  std::vector<forecast::Forecast> forecasts;
  for (const forecast::Setting& setting : settings) {
    try {
      forecasts.push_back(forecast::forecast_of(step, program.description, setting, cluster));
    } catch (const Error& error) {
      // The program's own options may not suit each mesh of a table.
      if (!is_table || error.id() != "strategy.fsdp.options") throw;
      log::info("plan: {} on {} is left out: {}", setting.name(), to_text(setting.mesh),
                error.text());
    }
  }
  std::optional<forecast::Choice> choice;
  if (limit > 0) choice = forecast::choose(forecasts, limit);
  const forecast::Choice* chosen = choice ? &*choice : nullptr;
  if (is_json) {
    std::cout << to_json(forecasts, program.description, cluster, chosen);
  } else if (is_table) {
    std::cout << table_of(forecasts, program.description, cluster, chosen);
  } else {
    std::cout << to_text(forecasts.front(), program.description, cluster, num_listed);
  }
  LEVIN_CHECK(chosen == nullptr || chosen->best, "tools.plan.fits", "{}", chosen->reason);
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
  ForecastOptions forecast;
  add_forecast_options(app, forecast);
  app.add_flag("--json", is_json, "print JSON; numbers in bytes and seconds");
  if (!parse_arguments(app, argc, argv, "tools.plan")) return 0;
  const graph::DeviceDescription target = device_named(device, "plan");
  std::vector<std::string> command = program_of(app, "plan");
  if (forecast.is_asked()) {
    print_forecast(forecast, command, num_largest, is_json);
    return 0;
  }
  LEVIN_CHECK(forecast.mesh.empty() && forecast.precision.empty(), "tools.plan",
              "got --mesh or --precision without a forecast; add --strategy, --compare or --fits");
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
