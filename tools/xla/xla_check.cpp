#include "tools/xla/xla_check.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/passes/passes.h"
#include "levin/xla/stablehlo/program.h"
#include "tools/xla/tpu.h"

namespace levin::tools {
namespace {

using graph::Graph;
using graph::Node;
using graph::Opcode;
using graph::Update;

bool is_input(const Node& node) {
  return node.opcode() == Opcode::kGetAttr || node.opcode() == Opcode::kPlaceholder;
}

/// The parameters' tensors are not in a program's file; that they want gradients is all that is
/// asked of them. Returns how many there are.
size_t mark_parameters(const Graph& graph) {
  size_t count = 0;
  for (const Update& update : graph.updates()) {
    Node& node = update.target->node();
    if (!update.is_gradient || node.opcode() != Opcode::kGetAttr) continue;
    ++count;
    if (node.tensor().defined()) continue;
    const graph::ValueType& type = node.output().type();
    const auto options = at::TensorOptions(type.dtype).device(at::kMeta);
    node.bind(at::empty(type.sizes, options).set_requires_grad(true));
  }
  return count;
}

/// Numbers without dimensions are state on the devices too, as where xla records the step.
void move_to_xla(Graph& graph) {
  for (Node& node : graph.nodes()) {
    if (!is_input(node)) continue;
    graph::ValueType type = node.output().type();
    type.device = at::Device(at::kXLA, 0);
    node.output().set_type(std::move(type));
  }
}

void check_device(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    LEVIN_CHECK(!is_input(node) || node.output().type().device.is_cpu(), "tools.xla",
                "the step was recorded on {}, wanted the CPU, where it keeps the gradients that "
                "the devices exchange; leave out the program's --accelerator",
                c10::str(node.output().type().device));
  }
}

double cost_named(const std::map<std::string, double>& costs, const std::string& name) {
  const auto found = costs.find(name);
  return found == costs.end() ? 0.0 : found->second;
}

}  // namespace

int64_t CheckedStep::total_bytes() const {
  return memory.arguments + memory.outputs - memory.aliased + memory.temporary + memory.code;
}

bool CheckedStep::fits() const {
  return refusal.empty() && (hbm_bytes == 0.0 || static_cast<double>(total_bytes()) <= hbm_bytes);
}

Graph replica_of(const Graph& step, int64_t num_devices) {
  check_device(step);
  Graph graph = step.clone();
  const size_t num_parameters = mark_parameters(graph);
  LEVIN_CHECK(num_devices == 1 || num_parameters > 0, "tools.xla",
              "the step leaves no gradients for {} devices to exchange; call zero_grad before "
              "backward instead of after the update",
              num_devices);
  if (num_devices > 1) graph::insert_gradient_all_reduces(graph, "devices");
  move_to_xla(graph);
  return graph;
}

void check_step(const Graph& step, const CompileStep& compile, CheckedStep& checked) {
  const Graph replica = replica_of(step, checked.num_cores);
  const xla::Program program = xla::lower(
      replica, {.num_replicas = checked.num_cores, .may_donate = [](const Node&) { return true; }});
  const auto start = std::chrono::steady_clock::now();
  const auto seconds_since_start = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  try {
    const auto compiled = compile(program.text, {.num_replicas = checked.num_cores});
    checked.compile_s = seconds_since_start();
    checked.memory = compiled.memory().value_or(xla::pjrt::ProgramMemory{});
    const auto costs = compiled.costs();
    checked.flops = cost_named(costs, "flops");
    checked.bytes = cost_named(costs, "bytes accessed");
    checked.collectives = collectives_of(compiled.optimized_text());
  } catch (const Error& error) {
    if (error.id() != "xla.memory") throw;
    checked.compile_s = seconds_since_start();
    checked.refusal = error.text();
  }
}

CheckedStep check_step(const Graph& step, const xla::pjrt::Topology& topology) {
  CheckedStep checked{.topology = topology.name(),
                      .device_kind = topology.device_kind(),
                      .num_cores = topology.num_devices()};
  const auto compile = [&](std::string_view text, const xla::pjrt::CompileOptions& options) {
    return topology.compile(text, options);
  };
  check_step(step, compile, checked);
  if (const Tpu* const tpu = find_tpu(topology.name())) {
    checked.hbm_bytes = tpu->hbm_bytes;
    checked.seconds = std::max(checked.flops / tpu->flops_per_s, checked.bytes / tpu->bytes_per_s);
  }
  return checked;
}

}  // namespace levin::tools
