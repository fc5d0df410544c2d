#include "tools/graph/plan_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>

#include "tools/graph/node_text.h"

namespace levin::tools {
namespace {

using graph::MemoryUse;
using Texts = std::unordered_map<const graph::Node*, NodeText>;
using Json = nlohmann::ordered_json;

constexpr std::array kPhases = {Phase::kForward, Phase::kBackward, Phase::kUpdate};
constexpr std::array kUses = {MemoryUse::kParameter, MemoryUse::kGradient, MemoryUse::kState,
                              MemoryUse::kInput, MemoryUse::kValue};

void add(PhaseCost& sum, const graph::NodeCost& one) {
  ++sum.num_operators;
  sum.flops += one.flops;
  sum.bytes += one.bytes;
  sum.seconds += one.seconds;
}

PlannedTensor planned(const graph::LiveValue& live, const StepOutline& outline,
                      const Texts& texts) {
  const graph::Node& node = live.value->node();
  const auto output = std::ranges::find(node.outputs(), live.value) - node.outputs().begin();
  PlannedTensor tensor{.bytes = live.bytes,
                       .type = texts.at(&node).types.at(static_cast<size_t>(output)),
                       .kind = std::string(name_of(use_of(live, outline)))};
  const bool is_computed = node.opcode() == graph::Opcode::kCallFunction;
  tensor.name = is_computed ? std::string(node.target()) : node.name();
  if (is_computed) {
    tensor.module = outline.roles.at(&node).module;
  } else if (const auto owner = outline.owners.find(&node); owner != outline.owners.end()) {
    tensor.module = owner->second;
  }
  return tensor;
}

void add_memory(Plan& plan, const graph::Graph& graph, const StepOutline& outline,
                size_t num_largest) {
  const graph::MemoryProfile memory = graph::memory_of(graph);
  plan.peak_bytes = memory.peak_bytes;
  const auto peak = std::next(graph.nodes().begin(), static_cast<std::ptrdiff_t>(memory.peak_node));
  plan.peak_operator = std::string(peak->target());
  const auto role = outline.roles.find(&*peak);
  if (role != outline.roles.end()) plan.peak_role = role->second;
  const Texts texts = texts_of(graph);
  for (const graph::LiveValue& live : memory.alive_at_peak) {
    plan.memory[static_cast<size_t>(use_of(live, outline))] += live.bytes;
    if (plan.largest.size() < num_largest) plan.largest.push_back(planned(live, outline, texts));
  }
}

std::string cost_row(std::string_view name, const PhaseCost& cost) {
  return fmt::format("{:<10}{:>10}{:>14}{:>12}{:>12}\n", name, cost.num_operators,
                     in_units(cost.flops, "FLOP"), in_units(cost.bytes, "B"),
                     in_units(cost.seconds, "s"));
}

std::string cost_table(const Plan& plan) {
  std::string text = fmt::format("{:<10}{:>10}{:>14}{:>12}{:>12}\n", "", "operators", "arithmetic",
                                 "moved", "time");
  for (const Phase phase : kPhases) {
    text += cost_row(name_of(phase), plan.phases[static_cast<size_t>(phase)]);
  }
  return text + cost_row("in all", plan.total);
}

std::string in_module(const std::string& module) {
  return module.empty() ? "" : fmt::format(" of {}", module);
}

std::string memory_table(const Plan& plan) {
  std::string text =
      fmt::format("memory at the peak: {}, at {}{} in {}\n",
                  in_units(static_cast<double>(plan.peak_bytes), "B"), plan.peak_operator,
                  in_module(plan.peak_role.module), name_of(plan.peak_role.phase));
  for (const MemoryUse use : kUses) {
    const auto bytes = static_cast<double>(plan.memory[static_cast<size_t>(use)]);
    text += fmt::format("  {:<32}{:>10}{:>6.1f} %\n",
                        use == MemoryUse::kState ? "optimizer's state and buffers" : name_of(use),
                        in_units(bytes, "B"),
                        100.0 * bytes / std::max(1.0, static_cast<double>(plan.peak_bytes)));
  }
  return text;
}

std::string largest_table(const Plan& plan) {
  return plan.largest.empty() ? "" : "\nlargest tensors at the peak\n" + largest_text(plan);
}

std::string verdict(const Plan& plan) {
  const auto peak = static_cast<double>(plan.peak_bytes);
  const graph::DeviceDescription& device = plan.device;
  return fmt::format("{} {}: {} of its {}, {:.1f} %\n",
                     peak <= device.memory_bytes ? "fits" : "does not fit", device.name,
                     in_units(peak, "B"), in_units(device.memory_bytes, "B"),
                     100.0 * peak / device.memory_bytes);
}

Json json_of(const PhaseCost& cost) {
  return {{"operators", cost.num_operators},
          {"flops", cost.flops},
          {"bytes", cost.bytes},
          {"seconds", cost.seconds}};
}

}  // namespace

std::string_view name_of(MemoryUse use) {
  switch (use) {
    case MemoryUse::kInput:
      return "inputs";
    case MemoryUse::kParameter:
      return "parameters";
    case MemoryUse::kState:
      return "state";
    case MemoryUse::kGradient:
      return "gradients";
    case MemoryUse::kValue:
      return "values";
  }
  return "";
}

Plan plan_of(const graph::Graph& graph, const graph::DeviceDescription& device,
             size_t num_largest) {
  const StepOutline outline = outline_of(graph);
  Plan plan{.device = device};
  for (const graph::NodeCost& cost : graph::cost_of(graph, device).nodes) {
    add(plan.phases[static_cast<size_t>(outline.roles.at(cost.node).phase)], cost);
    add(plan.total, cost);
  }
  plan.num_parameters = num_parameters(outline);
  add_memory(plan, graph, outline, num_largest);
  return plan;
}

std::string largest_text(const Plan& plan) {
  std::string text;
  for (const PlannedTensor& tensor : plan.largest) {
    const bool is_named = !tensor.name.starts_with("aten::") && tensor.kind != "values";
    text += fmt::format("  {:>9}  {:<24}  {}{}\n", in_units(static_cast<double>(tensor.bytes), "B"),
                        tensor.type, tensor.name, is_named ? "" : in_module(tensor.module));
  }
  return text;
}

std::string to_text(const Plan& plan) {
  const graph::DeviceDescription& device = plan.device;
  return fmt::format("a step of {} parameters, on {} at {} and {}\n\n{}\n{}{}\n{}",
                     in_units(static_cast<double>(plan.num_parameters), ""), device.name,
                     in_units(device.flops_per_s, "FLOP/s"), in_units(device.bytes_per_s, "B/s"),
                     cost_table(plan), memory_table(plan), largest_table(plan), verdict(plan));
}

std::string to_json(const Plan& plan) {
  Json json = {{"device", plan.device.name},
               {"device_memory_bytes", plan.device.memory_bytes},
               {"parameters", plan.num_parameters}};
  for (const Phase phase : kPhases) {
    json["phases"][std::string(name_of(phase))] = json_of(plan.phases[static_cast<size_t>(phase)]);
  }
  json["total"] = json_of(plan.total);
  json["peak"] = {{"bytes", plan.peak_bytes},
                  {"operator", plan.peak_operator},
                  {"phase", name_of(plan.peak_role.phase)},
                  {"module", plan.peak_role.module}};
  for (const MemoryUse use : kUses) {
    json["peak"]["by_kind"][std::string(name_of(use))] = plan.memory[static_cast<size_t>(use)];
  }
  json["peak"]["largest"] = Json::array();
  for (const PlannedTensor& tensor : plan.largest) {
    json["peak"]["largest"].push_back({{"bytes", tensor.bytes},
                                       {"type", tensor.type},
                                       {"kind", tensor.kind},
                                       {"name", tensor.name},
                                       {"module", tensor.module}});
  }
  return json.dump(2) + "\n";
}

}  // namespace levin::tools
