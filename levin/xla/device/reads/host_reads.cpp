// What the host reads of the device: by itself all that was recorded runs. Within a step the value is
// computed beside it, which changes nothing, and what was read becomes a part of the recording.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "levin/graph/record/current_place.h"
#include "levin/xla/device/runtime_impl.h"
#include "levin/xla/device/stopwatch.h"

namespace levin::xla {
namespace {

/// Those of a program are drawn when it runs, and the step's are others.
bool draws(const graph::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const graph::Node& node) {
    return node.opcode() == graph::Opcode::kCallFunction && node.is_random();
  });
}

}  // namespace

at::Tensor Runtime::Impl::contents_of(const Contents& contents) {
  check_not_lost(contents);
  if (contents.buffers.empty()) return at::zeros(contents.sizes, contents.dtype);
  ++report.downloads;
  const Stopwatch watch(report.transfer_s);
  if (contents.split_dim < 0) return contents.buffers.front().download();
  std::vector<at::Tensor> parts;
  for (const pjrt::Buffer& buffer : contents.buffers) parts.push_back(buffer.download());
  return at::cat(parts, contents.split_dim);
}

at::Tensor Runtime::Impl::contents_of(const at::Tensor& tensor) {
  const Contents& contents = Contents::of(tensor);
  at::Tensor logical = contents_of(contents);
  if (contents.is_base(tensor)) return logical;
  const at::Tensor memory =
      at::empty_strided(contents.sizes, contents.strides, contents.dtype).copy_(logical);
  return memory.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

at::Tensor Runtime::Impl::download(const at::Tensor& tensor, std::string_view reader) {
  const std::scoped_lock lock(mutex);
  std::string reason;
  if (is_in_step && step_trouble.empty()) {
    reason = fmt::format(
        "the host reads a value of it by {}{}; compute with the tensor itself (torch::where in "
        "place of an if), or read it outside of the step",
        reader, graph::current_place());
  }
  if (Contents::of(tensor).is_pending) {
    flush(reason);
  } else if (!reason.empty()) {
    step_trouble = reason;  // a run of the step's program would not read it
  }
  return contents_of(tensor);
}

c10::IValue Runtime::Impl::read(const c10::OperatorHandle& op,
                                const std::vector<at::Tensor>& tensors, std::string_view reader) {
  const std::scoped_lock lock(mutex);
  std::vector<at::Tensor> values;
  // Processes that run programs together would not all take the same way.
  const bool is_recorded =
      is_in_step && step_trouble.empty() && world.size() == 1 && look_ahead(tensors, values);
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
    recording().call(op, stack, run);
  } else {
    run();
  }
  return stack.back();
}

/// Their values in the midst of a step. False where they depend on random numbers.
bool Runtime::Impl::look_ahead(const std::vector<at::Tensor>& tensors,
                               std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> pending;
  for (const at::Tensor& tensor : tensors) {
    prepare_own(tensor);
    if (is_met_by_memory(tensor)) recording().meet(Contents::of(tensor).base());
    if (Contents::of(tensor).is_pending) pending.push_back(tensor);
  }
  std::vector<at::Tensor> computed;
  if (!pending.empty()) {
    const graph::Graph graph = recording().so_far(pending);
    if (draws(graph)) return false;
    const Binding binding = step_binding(graph);
    const KnownProgram& known = program_of(graph, binding);
    execute(known.program, *known.executable, binding);
    computed = downloaded_outputs(known.program);
  }
  auto next = computed.begin();
  for (const at::Tensor& tensor : tensors) {
    values.push_back(Contents::of(tensor).is_pending ? *next++ : contents_of(tensor));
  }
  return true;
}

/// Of the last run, of a program that changes nothing.
std::vector<at::Tensor> Runtime::Impl::downloaded_outputs(const Program& program) {
  const Stopwatch watch(report.transfer_s);
  std::vector<at::Tensor> values(program.outputs.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[program.outputs[i].index] = outputs[i].download();
    ++report.downloads;
  }
  return values;
}

}  // namespace levin::xla
