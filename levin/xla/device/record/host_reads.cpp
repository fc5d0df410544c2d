// The host reads a value of the device: by itself all that was recorded runs. Within a step the
// value is computed beside it, which changes nothing, and what was read becomes a part of the
// recording.
#include <fmt/format.h>

#include <algorithm>

#include "levin/graph/record/current_place.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

/// Returns whether the graph draws random numbers. A program draws when it runs, so its numbers
/// differ from the step's.
bool draws(const graph::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const graph::Node& node) {
    return node.opcode() == graph::Opcode::kCallFunction && node.is_random();
  });
}

}  // namespace

at::Tensor Recording::download(const at::Tensor& tensor, std::string_view reader) {
  const std::scoped_lock lock(owner_.mutex);
  std::string reason;
  if (is_in_step_ && step_trouble_.empty()) {
    reason = fmt::format(
        "the host reads a value of it with {}{}; compute with the tensor itself (torch::where "
        "instead of an if), or read it outside of the step",
        reader, graph::current_place());
  }
  if (Contents::of(tensor).is_pending) {
    flush(reason);
  } else if (!reason.empty()) {
    refuse_step(reason);  // a run of the step's program would not read it
  }
  return devices_.contents_of(tensor);
}

c10::IValue Recording::read(const c10::OperatorHandle& op, const std::vector<at::Tensor>& tensors,
                            std::string_view reader) {
  const std::scoped_lock lock(owner_.mutex);
  std::vector<at::Tensor> values;
  // Processes that run programs together would not all take the same way.
  const bool is_recorded = is_in_step_ && step_trouble_.empty() && devices_.world().size() == 1 &&
                           look_ahead(tensors, values);
  if (!is_recorded) {
    values.clear();
    for (const at::Tensor& tensor : tensors) values.push_back(download(tensor, reader));
  }
  std::vector<c10::IValue> stack(tensors.begin(), tensors.end());
  const auto run = [&] {
    stack.assign(values.begin(), values.end());
    op.callBoxed(stack);
  };
  if (is_recorded) {
    recorder().call(op, stack, run);
  } else {
    run();
  }
  return stack.back();
}

/// Their values in the midst of a step. False where they depend on random numbers.
bool Recording::look_ahead(const std::vector<at::Tensor>& tensors,
                           std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> pending;
  for (const at::Tensor& tensor : tensors) {
    prepare_own(tensor);
    if (is_met_by_memory(tensor)) recorder().meet(Contents::of(tensor).base());
    if (Contents::of(tensor).is_pending) pending.push_back(tensor);
  }
  std::vector<at::Tensor> computed;
  if (!pending.empty()) {
    const graph::Graph graph = recorder().so_far(pending);
    if (draws(graph)) return false;
    const Binding binding = step_binding(graph);
    const KnownProgram& known = memo_.program_of(graph, split_dims(binding));
    devices_.execute(*known.executable, arguments_of(known.program, binding));
    computed = devices_.downloaded_outputs(known.program);
  }
  auto next = computed.begin();
  for (const at::Tensor& tensor : tensors) {
    values.push_back(Contents::of(tensor).is_pending ? *next++ : devices_.contents_of(tensor));
  }
  return true;
}

}  // namespace levin::xla
