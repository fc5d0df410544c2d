#include <algorithm>

#include "levin/graph/passes/passes.h"
#include "levin/xla/device/reads/read_guards_impl.h"

namespace levin::xla {
namespace {

bool is_input(const graph::Value& value) {
  return value.node().opcode() != graph::Opcode::kCallFunction;
}

/// Sizes that depend on values are none on the device: such an operator always gives the same.
bool gives_number(const graph::Node& node) {
  return std::ranges::all_of(node.outputs(), [](const graph::Value* value) {
    return value->type().kind == graph::ValueKind::kHost;
  });
}

}  // namespace

ReadGuards::ReadGuards(RuntimeImpl& impl, const graph::Graph& step)
    : impl_(impl), graph_(step.host_reads().empty() ? graph::Graph() : step.clone()) {
  graph::Values outputs;
  size_t number = 0;
  for (graph::Node* node : graph_.host_reads()) {
    const size_t place = number++;
    if (!gives_number(*node)) continue;
    Read& read = reads_.emplace_back(Read{place, node->op(), node->host_read(), {}});
    for (graph::Value* operand : node->inputs()) {
      read.operands.push_back(operand);
      if (!is_input(*operand)) outputs.push_back(operand);
    }
  }
  computed_.assign(outputs.begin(), outputs.end());
  graph_.set_outputs(outputs);
  graph::keep_what_outputs_need(graph_);
}

void ReadGuards::prepare(const std::vector<at::Tensor>& inputs) {
  if (computed_.empty()) return;
  const Binding tensor_of = binding(inputs);
  program_ = impl_.memo.lowered(graph_, split_dims(tensor_of));
  executable_ = &impl_.memo.executable_of(program_, graph_);
}

Binding ReadGuards::binding(const std::vector<at::Tensor>& inputs) const {
  std::unordered_map<const graph::Node*, const at::Tensor*> tensors;
  for (const graph::Node* node : graph_.find_nodes(graph::Opcode::kPlaceholder)) {
    tensors[node] = &inputs[tensors.size()];
  }
  return [tensors = std::move(tensors)](const graph::Node& node) -> const at::Tensor& {
    const auto found = tensors.find(&node);
    return found == tensors.end() ? node.tensor() : *found->second;
  };
}

at::Tensor ReadGuards::value_of(const graph::Value& operand,
                                const std::vector<at::Tensor>& computed,
                                const Binding& binding) const {
  if (is_input(operand)) return impl_.devices.contents_of(binding(operand.node()));
  return computed[std::ranges::find(computed_, &operand) - computed_.begin()];
}

std::optional<graph::OtherRead> ReadGuards::other(const std::vector<at::Tensor>& inputs) {
  if (reads_.empty()) return std::nullopt;
  const Binding tensor_of = binding(inputs);
  std::vector<at::Tensor> computed;
  if (executable_ != nullptr) {
    impl_.devices.execute(*executable_, impl_.recording.arguments_of(program_, tensor_of));
    computed = impl_.devices.downloaded_outputs(program_);
  }
  for (const Read& read : reads_) {
    std::vector<c10::IValue> stack;
    for (const graph::Value* operand : read.operands) {
      stack.emplace_back(value_of(*operand, computed, tensor_of));
    }
    read.op.callBoxed(stack);
    graph::HostRead now = graph::HostRead::of(read.op, stack);
    if (!(now == *read.was)) return graph::OtherRead{read.number, std::move(now)};
  }
  return std::nullopt;
}

}  // namespace levin::xla
