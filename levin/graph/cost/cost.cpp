#include <ATen/core/ivalue.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/cost/exchange_impl.h"
#include "levin/graph/cost/flops.h"
#include "levin/graph/cost/schedule_impl.h"
#include "levin/graph/cost/timeline.h"
#include "levin/graph/cost/tpu_generations.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

double numel(const ValueType& type) {
  return std::accumulate(type.sizes.begin(), type.sizes.end(), 1.0, std::multiplies());
}

double bytes_of(const ValueType& type) {
  if (type.kind != ValueKind::kTensor) return 0.0;
  return numel(type) * static_cast<double>(c10::elementSize(type.dtype));
}

bool is_true(const Argument& argument) {
  const c10::IValue* constant = constant_of(argument);
  return constant != nullptr && constant->isBool() && constant->toBool();
}

CallShapes shapes_of(const Node& node, std::string_view name) {
  CallShapes shapes;
  for (const Value* input : node.inputs()) {
    const bool is_tensor = input != nullptr && input->type().kind == ValueKind::kTensor;
    shapes.inputs.emplace_back();
    if (is_tensor)
      shapes.inputs.back().assign(input->type().sizes.begin(), input->type().sizes.end());
  }
  const auto& output = node.outputs().front()->type().sizes;
  shapes.output.assign(output.begin(), output.end());
  if (name == "aten::convolution") shapes.is_transposed = is_true(node.arguments()[6]);
  if (name == "aten::convolution_backward") {
    shapes.is_transposed = is_true(node.arguments()[7]);
    const auto mask = constant_of(node.arguments()[10])->toBoolList();
    shapes.input_gradient = mask[0];
    shapes.weight_gradient = mask[1];
  }
  return shapes;
}

/// Any operator without a formula costs one for each element of its results.
double flops_of(const Node& node) {
  const std::string_view name = node.op().schema().name();
  if (has_flop_formula(name)) return flops_of_call(name, shapes_of(node, name));
  double elements = 0.0;
  for (const Value* output : node.outputs()) {
    if (output->type().kind == ValueKind::kTensor) elements += numel(output->type());
  }
  return elements;
}

double traffic_of(const Node& node) {
  double bytes = 0.0;
  for (const Value* input : node.inputs()) {
    if (input != nullptr) bytes += bytes_of(input->type());
  }
  for (const Value* output : node.outputs()) bytes += bytes_of(output->type());
  return bytes;
}

bool computes_in_half(const Node& node) {
  return std::ranges::any_of(node.outputs(), [](const Value* output) {
    return output->type().kind == ValueKind::kTensor &&
           c10::isReducedFloatingType(output->type().dtype);
  });
}

void check_types(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    for (const Value* value : node.outputs()) {
      LEVIN_CHECK(value->type().kind != ValueKind::kTensor ||
                      value->type().dtype != at::ScalarType::Undefined,
                  "graph.cost", "the result of {} has no known type; call propagate_types first",
                  std::string(node.target()));
    }
  }
}

}  // namespace

const std::vector<DeviceDescription>& known_devices() {
  static const std::vector<DeviceDescription> kDevices = [] {
    constexpr double kTera = 1e12, kGiga = 1e9;
    std::vector<DeviceDescription> devices = {
        {"cpu", 60 * kGiga, 60 * kGiga, 10 * kGiga, 16 * kGiga, 2e-6},
        {"a100", 156 * kTera, 312 * kTera, 2039 * kGiga, 80 * kGiga, 5e-6},
        {"h100", 495 * kTera, 989 * kTera, 3350 * kGiga, 80 * kGiga, 5e-6},
        {"h200", 495 * kTera, 989 * kTera, 4800 * kGiga, 141 * kGiga, 5e-6}};
    for (const TpuGeneration& tpu : kTpuGenerations) {
      const auto cores = static_cast<double>(tpu.cores_of_chip);
      const std::string name = tpu.name.starts_with("tpu") ? "" : "tpu-";
      devices.push_back({.name = name + std::string(tpu.name),
                         .flops_per_s = cores * tpu.flops_per_s / 2,
                         .half_flops_per_s = cores * tpu.flops_per_s,
                         .bytes_per_s = cores * tpu.bytes_per_s,
                         .memory_bytes = cores * tpu.hbm_bytes,
                         .operator_s = 0.0});
    }
    return devices;
  }();
  return kDevices;
}

std::optional<DeviceDescription> find_device(std::string_view name) {
  const auto found = std::ranges::find(known_devices(), name, &DeviceDescription::name);
  return found == known_devices().end() ? std::nullopt : std::optional(*found);
}

GraphCost cost_of(const Graph& graph, const DeviceDescription& device) {
  check_types(graph);
  GraphCost cost;
  for (const Node& node : graph.nodes()) {
    if (node.opcode() != Opcode::kCallFunction || info_of(node).makes_view()) continue;
    NodeCost one{.node = &node, .flops = flops_of(node), .bytes = traffic_of(node)};
    const double rate = computes_in_half(node) ? device.half_flops_per_s : device.flops_per_s;
    one.seconds = std::max(one.flops / rate, one.bytes / device.bytes_per_s) + device.operator_s;
    if (const auto exchange = exchange_cost(node)) {
      one.flops = exchange->flops;
      one.sent_bytes = exchange->sent_bytes;
      one.seconds = exchange->seconds;
    }
    cost.flops += one.flops;
    cost.bytes += one.bytes;
    cost.seconds += one.seconds;
    cost.nodes.push_back(one);
  }
  return cost;
}

namespace {

/// A parameter is what gets a gradient; in a graph from a file no tensor is bound that could tell.
MemoryUse use_of(const Node& node, const std::unordered_set<const Value*>& parameters) {
  if (node.opcode() == Opcode::kCallFunction) return MemoryUse::kValue;
  if (node.opcode() == Opcode::kPlaceholder) return MemoryUse::kInput;
  const bool learns = node.tensor().defined() && node.tensor().requires_grad();
  return learns || parameters.contains(&node.output()) ? MemoryUse::kParameter : MemoryUse::kState;
}

std::unordered_set<const Value*> parameters_of(const Graph& graph) {
  std::unordered_set<const Value*> parameters;
  for (const Update& update : graph.updates()) {
    if (update.is_gradient) parameters.insert(update.target);
  }
  return parameters;
}

std::unordered_set<const Value*> gradients_of(const Graph& graph) {
  std::unordered_set<const Value*> gradients;
  for (const Update& update : graph.updates()) {
    if (update.is_gradient) gradients.insert(update.value);
  }
  return gradients;
}

/// Returns by block the values that are alive at the peak and have bytes.
std::map<size_t, LiveValue> alive_at_peak(const Profile& profile, const Values& values,
                                          const std::unordered_set<const Value*>& parameters) {
  std::map<size_t, LiveValue> alive;
  for (size_t i = 0; i < profile.blocks.size(); ++i) {
    const Block& block = profile.blocks[i];
    if (block.bytes == 0 || block.step > profile.peak_step || block.last < profile.peak_step) {
      continue;
    }
    const Value* value = values[block.value];
    alive[i] = {value, use_of(value->node(), parameters), block.bytes};
  }
  return alive;
}

}  // namespace

MemoryProfile memory_of(const Graph& graph) {
  check_types(graph);
  const std::vector<IndexedNode> nodes = index_nodes(graph);
  Profile profile = profile_of(nodes, schedule_of(nodes, Cuts(nodes.size())));
  Values values;
  for (const Node& node : graph.nodes()) {
    values.insert(values.end(), node.outputs().begin(), node.outputs().end());
  }
  std::map<size_t, LiveValue> alive = alive_at_peak(profile, values, parameters_of(graph));
  const std::unordered_set<const Value*> gradients = gradients_of(graph);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto live = alive.find(profile.values[i].memory);
    if (live != alive.end() && gradients.contains(values[i]))
      live->second.use = MemoryUse::kGradient;
  }
  MemoryProfile memory{.bytes = std::move(profile.bytes),
                       .peak_bytes = profile.peak_bytes,
                       .peak_node = profile.peak_step};
  for (const auto& [block, live] : alive) memory.alive_at_peak.push_back(live);
  std::ranges::stable_sort(memory.alive_at_peak, std::greater(), &LiveValue::bytes);
  return memory;
}

Timeline timeline_of(const Graph& graph) {
  check_types(graph);
  const std::vector<IndexedNode> nodes = index_nodes(graph);
  const Profile profile = profile_of(nodes, schedule_of(nodes, Cuts(nodes.size())));
  Timeline timeline;
  size_t number = 0;
  for (const Node& node : graph.nodes()) {
    timeline.nodes.push_back(&node);
    for (const Value* value : node.outputs()) {
      const size_t block = profile.values[number++].memory;
      if (block < profile.blocks.size()) timeline.block_of.emplace(value, block);
    }
  }
  for (const Block& block : profile.blocks) {
    timeline.blocks.push_back({block.bytes, block.step, block.last, block.is_owned});
  }
  return timeline;
}

int64_t state_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const IndexedNode& node : index_nodes(graph)) {
    const bool is_state = node.node->opcode() == Opcode::kGetAttr;
    const bool is_input = node.node->opcode() == Opcode::kPlaceholder;
    if (is_state || (is_input && node.is_read)) bytes += std::max<int64_t>(0, node.bytes.front());
  }
  return bytes;
}

}  // namespace levin::graph
