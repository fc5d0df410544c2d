#include "levin/graph/replay/replay.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/interpret/input_overlap_impl.h"
#include "levin/graph/replay/device_graphs_impl.h"
#include "levin/graph/replay/replay_impl.h"
#include "levin/graph/text/text_impl.h"

namespace levin::graph {
namespace {

/// Gives the pages that lie between two addresses back to the system; they come again, as zeros, when
/// they are written.
void give_back(uintptr_t begin, uintptr_t end) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // NOLINT
}

void set_memory(const c10::Storage& storage, c10::DataPtr data) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
}

/// The memory of a tensor that the caller keeps. A device that copies from pinned memory later on
/// tells the allocator by the context, without which the memory of a view would be given to others
/// too early.
c10::DataPtr lent(const at::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.storage().data_ptr().get_context(), &c10::detail::deleteNothing,
          tensor.device()};
}

/// The result's memory becomes the tensor's, which its views share.
void adopt(const at::Tensor& result, const at::Tensor& tensor) {
  const bool is_whole = result.storage_offset() == 0 && result.strides() == tensor.strides() &&
                        result.storage().use_count() == 1;
  if (is_whole) {
    c10::StorageImpl* storage = result.storage().unsafeGetStorageImpl();
    set_memory(tensor.storage(), storage->set_data_ptr(c10::DataPtr(nullptr, result.device())));
    return;
  }
  const at::Tensor own = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  own.copy_(result);
  adopt(own, tensor);
}

/// clone(), without the dispatcher for what lies in one piece on the CPU: a loss, as a rule.
at::Tensor copy_for_caller(const at::Tensor& tensor) {
  const bool is_plain = tensor.is_cpu() && tensor.layout() == at::kStrided &&
                        !tensor.is_quantized() && !tensor.is_conj() && !tensor.is_neg() &&
                        tensor.is_contiguous();
  if (!is_plain) return tensor.clone();
  at::Tensor copy = at::detail::empty_cpu(tensor.sizes(), tensor.scalar_type());
  std::memcpy(copy.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
  return copy;
}

/// The tensor with one element of each dim of stride 0, whose elements are one in memory.
at::Tensor without_repeats(at::Tensor tensor) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

void check_replayable(const Graph& graph) {
  for (const Node* read : graph.host_reads()) {
    LEVIN_CHECK(read->host_read() != nullptr, "graph.replay",
                "the host reads the result of {}, but the value that it read is unknown; record "
                "the function again, or leave that read out of it",
                read->target());
  }
  for (const Node& node : graph.nodes()) {
    for (const Value* value : node.outputs()) {
      LEVIN_CHECK(value->type().kind != ValueKind::kTensor ||
                      value->type().dtype != at::ScalarType::Undefined,
                  "graph.replay", "the result of {} has no known type; call propagate_types first",
                  std::string(node.target()));
    }
  }
}

/// In calls that are run operator by operator libraries choose their kernels.
constexpr int kWarmUps = 2;

/// The device graphs of the GPU that the graph computes on; nullptr if it does not.
std::unique_ptr<DeviceGraphs> device_graphs_of(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    for (const Value* value : node.outputs()) {
      const ValueType& type = value->type();
      if (type.kind == ValueKind::kTensor && type.device.is_cuda()) {
        return make_cuda_graphs(type.device);
      }
    }
  }
  return nullptr;
}

}  // namespace

struct Replay::Impl {
  /// Instructions that a graph of the device captures, or others, in a row.
  struct Row {
    std::span<const Instruction> instructions;
    bool is_captured = false;
    std::optional<size_t> graph = {};  ///< once it is captured
  };

  Impl(const Graph& graph, std::unique_ptr<DeviceGraphs> graphs, const ReplayOptions& options);

  at::Tensor laid_out(const at::Tensor& given, BoundInput& bound) const;
  bool is_own_gradient(const at::Tensor& given) const;
  void bind(const std::vector<at::Tensor>& inputs);
  std::string moved() const;
  void run();
  void run_captured(Row& row);
  size_t captured(const std::function<void()>& run_row);
  void run(std::span<const Instruction> instructions);
  void call(const Instruction& instruction, bool may_be_direct);
  bool reads_the_same(const Instruction& instruction);
  void note_before();
  void undo();
  void let_go();
  std::vector<at::Tensor> finish(const std::vector<at::Tensor>& inputs);
  void leave_memory() const;

  InputOverlap overlap;
  ReplayProgram program;
  torch::jit::Stack stack;
  std::vector<const c10::StorageImpl*> gradients;  ///< memory of gradients that a run leaves
  std::vector<at::Tensor> held;  ///< inputs in the layout of the graph's, while it runs
  std::unique_ptr<DeviceGraphs> device_graphs;  ///< none where nothing can be captured
  std::vector<Row> rows;
  int64_t num_calls = 0;
  const Instruction* running = nullptr;  ///< the last that was called
  std::optional<OtherRead> other_read;   ///< the read that ended the run
  Undo before;  ///< copies of what a run changes before the host's last read
};

Replay::Replay(const Graph& graph, const ReplayOptions& options)
    : Replay(graph, device_graphs_of(graph), options) {}
Replay::Replay(const Graph& graph, std::unique_ptr<DeviceGraphs> device_graphs,
               const ReplayOptions& options) {
  check_replayable(graph);
  if (graph.has_claimed_types()) check_claimed_types(graph);
  impl_ = std::make_unique<Impl>(graph, std::move(device_graphs), options);
}
Replay::~Replay() = default;
Replay::Replay(Replay&& other) noexcept = default;
Replay& Replay::operator=(Replay&& other) noexcept = default;

Replay::Impl::Impl(const Graph& graph, std::unique_ptr<DeviceGraphs> graphs,
                   const ReplayOptions& options)
    : overlap(graph),
      program(
          plan_replay(graph, graphs ? std::optional(graphs->device()) : std::nullopt, options)) {
  if (program.report.num_captured > 0) device_graphs = std::move(graphs);
  for (const FinalUpdate& update : program.updates) {
    if (update.is_gradient) gradients.push_back(update.value.storage().unsafeGetStorageImpl());
  }
  for (Instruction& instruction : program.instructions) {
    instruction.is_direct = is_direct(instruction);
  }
  const std::span<const Instruction> all = program.instructions;
  for (size_t first = 0, next = 0; first < all.size(); first = next) {
    const bool is_captured = all[first].is_captured;
    while (next < all.size() && all[next].is_captured == is_captured) ++next;
    rows.push_back({all.subspan(first, next - first), is_captured});
  }
}

const ReplayReport& Replay::report() const { return impl_->program.report; }

void Replay::leave_memory() { impl_->leave_memory(); }

/// Gradients of the last run may still be read; all else is written in a run before it is read.
void Replay::Impl::leave_memory() const {
  std::vector<std::pair<uintptr_t, uintptr_t>> kept;
  for (const FinalUpdate& update : program.updates) {
    if (!update.is_gradient || !update.value.has_storage()) continue;
    const auto begin = reinterpret_cast<uintptr_t>(update.value.storage().data());
    kept.emplace_back(begin, begin + update.value.storage().nbytes());
  }
  std::ranges::sort(kept);
  for (const at::Tensor& arena : program.arenas) {
    if (!arena.device().is_cpu()) continue;
    const auto first = reinterpret_cast<uintptr_t>(arena.const_data_ptr());
    const uintptr_t last = first + arena.nbytes();
    uintptr_t free = first;
    for (const auto& [begin, end] : kept) {
      give_back(free, std::min(begin, last));
      free = std::max(free, end);
    }
    give_back(free, last);
  }
}

void Replay::Impl::bind(const std::vector<at::Tensor>& inputs) {
  LEVIN_CHECK(inputs.size() == program.inputs.size(), "graph.input", "got {} inputs, wanted {}",
              inputs.size(), program.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    BoundInput& bound = program.inputs[i];
    const at::Tensor& given = inputs[i];
    const bool fits = given.defined() ? given.sizes() == bound.type.sizes &&
                                            given.scalar_type() == bound.type.dtype &&
                                            given.device() == bound.type.device
                                      : bound.type.kind == ValueKind::kUndefined;
    LEVIN_CHECK(fits, "graph.input", "{} is {}, wanted {}; trace the function again for it",
                bound.name, text_of(ValueType::of(given)), text_of(bound.type));
    if (!bound.tensor.defined()) {
      held.emplace_back();
      continue;
    }
    held.push_back(laid_out(given, bound));
    set_memory(bound.tensor.storage(), lent(held.back()));
  }
  const std::string overlapping = device_graphs ? overlap.in(inputs) : std::string();
  LEVIN_CHECK(overlapping.empty(), "graph.input", "{}", overlapping);
  const std::string moved = this->moved();
  LEVIN_CHECK(moved.empty(), "graph.replay.moved",
              "{} lies in other memory than when the replay was made; make a new replay", moved);
}

/// Returns the input in the layout for which the operators were planned.
at::Tensor Replay::Impl::laid_out(const at::Tensor& given, BoundInput& bound) const {
  const bool is_captured = device_graphs && given.device() == device_graphs->device();
  if (!is_captured && given.strides() == bound.tensor.strides()) {
    return is_own_gradient(given) ? given.clone() : given;
  }
  at::Tensor place = bound.fixed;
  if (!place.defined()) {
    place = at::empty_strided(given.sizes(), bound.tensor.strides(), given.options());
  }
  if (is_captured) bound.fixed = place;
  if (given.strides() != place.strides()) return place.copy_(given);
  without_repeats(place).copy_(without_repeats(given));  // a copy to an expanded tensor is refused
  return place;
}

/// One that the last run has left, in memory that this one uses again: there is a new one in it
/// when this one ends.
bool Replay::Impl::is_own_gradient(const at::Tensor& given) const {
  return std::ranges::count(gradients, given.storage().unsafeGetStorageImpl()) > 0;
}

std::string Replay::Impl::moved() const {
  for (const BoundState& state : program.states) {
    if (state.has_moved()) return state.name;
  }
  return {};
}

void Replay::Impl::run() {
  for (Row& row : rows) {
    if (other_read) return;
    if (device_graphs && row.is_captured) {
      run_captured(row);
    } else {
      run(row.instructions);
    }
  }
  ++num_calls;
}

void Replay::Impl::run_captured(Row& row) {
  const auto run_row = [&] { run(row.instructions); };
  if (num_calls < kWarmUps) return device_graphs->warm_up(run_row);
  if (!row.graph) row.graph = captured(run_row);
  device_graphs->launch(*row.graph);
}

size_t Replay::Impl::captured(const std::function<void()>& run_row) {
  try {
    return device_graphs->capture(run_row);
  } catch (const c10::Error& error) {
    LEVIN_FAIL("graph.replay.capture",
               "{} cannot be captured in a graph of the device ({}); leave it out of the step, or "
               "run without compile = \"replay\"",
               c10::toString(running->op.operator_name()), error.what_without_backtrace());
  }
}

void Replay::Impl::run(std::span<const Instruction> instructions) {
  const bool has_matmuls =
      program.report.num_matmuls > 0 && program.matmul_settings == MatmulSettings::now();
  const bool may_be_direct = nobody_looks_on();
  for (const Instruction& instruction : instructions) {
    if (has_matmuls && instruction.matmul) {
      (*instruction.matmul)();
    } else {
      call(instruction, may_be_direct);
    }
    if (other_read) return;
    for (const c10::Storage& storage : instruction.released) {
      set_memory(storage, c10::DataPtr(nullptr, storage.device()));
    }
  }
}

void Replay::Impl::call(const Instruction& instruction, bool may_be_direct) {
  running = &instruction;
  stack.assign(instruction.arguments.begin(), instruction.arguments.end());
  if (may_be_direct && instruction.is_direct) {
    call_direct(instruction.op, stack);
  } else {
    instruction.op.callBoxed(&stack);
  }
  if (instruction.read && !reads_the_same(instruction)) return stack.clear();
  for (size_t i = 0; i < instruction.adopted.size(); ++i) {
    if (!instruction.adopted[i].defined()) continue;
    const c10::IValue& result = instruction.gives_list ? stack.front().toListRef()[i] : stack[i];
    LEVIN_CHECK(result.toTensor().defined(), "graph.replay",
                "{} did not return its result {}, which it returned in the recording",
                c10::toString(instruction.op.operator_name()), i);
    adopt(result.toTensor(), instruction.adopted[i]);
  }
  stack.clear();
}

bool Replay::Impl::reads_the_same(const Instruction& instruction) {
  HostRead read = HostRead::of(instruction.op, stack);
  if (read == *instruction.read) return true;
  other_read = OtherRead{instruction.read_number, std::move(read)};
  return false;
}

void Replay::Impl::note_before() {
  if (program.num_reads == 0) return;
  for (const at::Tensor& tensor : program.undo.tensors) before.tensors.push_back(tensor.clone());
  for (const at::Generator& generator : program.undo.generators) {
    before.generators.push_back(generator.clone());
  }
}

void Replay::Impl::undo() {
  for (size_t i = 0; i < before.tensors.size(); ++i) {
    program.undo.tensors[i].copy_(before.tensors[i]);
  }
  for (size_t i = 0; i < before.generators.size(); ++i) {
    at::Generator generator = program.undo.generators[i];
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(before.generators[i].get_state());
  }
}

std::vector<at::Tensor> Replay::Impl::finish(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs;
  outputs.reserve(program.outputs.size());
  for (const at::Tensor& output : program.outputs) {
    outputs.push_back(output.defined() ? copy_for_caller(output) : output);
  }
  std::vector<at::Tensor> kept;
  kept.reserve(program.updates.size());
  for (const FinalUpdate& update : program.updates) {
    kept.push_back(update.is_kept ? update.value.clone() : update.value);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const FinalUpdate& update = program.updates[i];
    const bool is_input = update.input < inputs.size();
    const at::Tensor& target = is_input ? inputs[update.input] : update.target;
    if (!update.is_gradient && is_input && is_own_gradient(target)) continue;
    if (!update.is_gradient) {
      target.copy_(kept[i]);
    } else if (!target.grad().is_same(kept[i])) {
      target.mutable_grad() = kept[i];
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const BoundInput& input = program.inputs[i];
    if (!input.is_written || held[i].is_same(inputs[i]) || is_own_gradient(inputs[i])) continue;
    inputs[i].copy_(held[i]);
  }
  return outputs;
}

/// Releases the inputs, also after an operator threw.
void Replay::Impl::let_go() {
  stack.clear();
  held.clear();
  before = {};
  for (const BoundInput& input : program.inputs) {
    if (!input.tensor.defined()) continue;
    set_memory(input.tensor.storage(), c10::DataPtr(nullptr, input.tensor.device()));
  }
}

std::vector<at::Tensor> Replay::operator()(const std::vector<at::Tensor>& inputs) {
  auto results = attempt(inputs);
  LEVIN_CHECK(results, "graph.replay.read",
              "the host would now read {} in its read number {} (from 0), but the recording has "
              "another value there; trace the function again",
              other_read()->read.text(), other_read()->number);
  return std::move(*results);
}

std::optional<std::vector<at::Tensor>> Replay::attempt(const std::vector<at::Tensor>& inputs) {
  // Kernels run in the mode of a forward pass: some give less if no gradient is wanted.
  const c10::AutoGradMode grad_mode(true);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  struct LetGo {
    Impl& impl;
    ~LetGo() { impl.let_go(); }
  } const at_end{*impl_};
  impl_->other_read.reset();
  impl_->bind(inputs);
  impl_->note_before();
  impl_->run();
  if (!impl_->other_read) return impl_->finish(inputs);
  impl_->undo();
  return std::nullopt;
}

const OtherRead* Replay::other_read() const {
  return impl_->other_read ? &*impl_->other_read : nullptr;
}

std::string Replay::moved() const { return impl_->moved(); }

}  // namespace levin::graph
