#include "levin/graph/replay.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

#include "levin/base/check.h"
#include "levin/graph/replay_impl.h"
#include "levin/graph/text_impl.h"

namespace levin::graph {
namespace {

void set_memory(const c10::Storage& storage, c10::DataPtr data) {
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
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

void check_replayable(const Graph& graph) {
  const std::vector<Node*> reads = graph.host_reads();
  LEVIN_CHECK(reads.empty(), "graph.replay", "the host reads what {} gives{}; leave that out of it",
              std::string(reads.front()->target()),
              reads.front()->source().empty() ? "" : " in " + reads.front()->source());
  for (const Node& node : graph.nodes()) {
    for (const Value* value : node.outputs()) {
      LEVIN_CHECK(value->type().kind != ValueKind::kTensor ||
                      value->type().dtype != at::ScalarType::Undefined,
                  "graph.replay", "what {} gives is of no known type; call propagate_types first",
                  std::string(node.target()));
    }
  }
}

ReplayProgram program_of(const Graph& graph) {
  check_replayable(graph);
  return plan_replay(graph);
}

}  // namespace

struct Replay::Impl {
  explicit Impl(const Graph& graph) : program(program_of(graph)) {}

  void bind(const std::vector<at::Tensor>& inputs);
  std::string moved() const;
  void run();
  void call(const Instruction& instruction);
  void let_go();
  std::vector<at::Tensor> finish(const std::vector<at::Tensor>& inputs);

  ReplayProgram program;
  torch::jit::Stack stack;
  std::vector<at::Tensor> held;  ///< inputs in the layout of the graph's, while it runs
};

Replay::Replay(const Graph& graph) : impl_(std::make_unique<Impl>(graph)) {}
Replay::~Replay() = default;
Replay::Replay(Replay&& other) noexcept = default;
Replay& Replay::operator=(Replay&& other) noexcept = default;

const ReplayReport& Replay::report() const { return impl_->program.report; }

void Replay::Impl::bind(const std::vector<at::Tensor>& inputs) {
  LEVIN_CHECK(inputs.size() == program.inputs.size(), "graph.input", "{} inputs, wanted {}",
              inputs.size(), program.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const BoundInput& bound = program.inputs[i];
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
    at::Tensor laid_out = given;
    if (given.strides() != bound.tensor.strides()) {
      laid_out = at::empty_strided(given.sizes(), bound.tensor.strides(), given.options());
      laid_out.copy_(given);
    }
    set_memory(bound.tensor.storage(), {laid_out.data_ptr(), given.device()});
    held.push_back(std::move(laid_out));
  }
  const std::string moved = this->moved();
  LEVIN_CHECK(moved.empty(), "graph.replay.moved",
              "{} lies elsewhere than when the replay was made; make another", moved);
}

std::string Replay::Impl::moved() const {
  for (const BoundState& state : program.states) {
    if (state.tensor.const_data_ptr() != state.data) return state.name;
  }
  return {};
}

void Replay::Impl::run() {
  const bool has_matmuls =
      program.report.num_matmuls > 0 && program.matmul_settings == MatmulSettings::now();
  for (const Instruction& instruction : program.instructions) {
    if (has_matmuls && instruction.matmul) {
      (*instruction.matmul)();
    } else {
      call(instruction);
    }
    for (const c10::Storage& storage : instruction.released) {
      set_memory(storage, c10::DataPtr(nullptr, storage.device()));
    }
  }
}

void Replay::Impl::call(const Instruction& instruction) {
  stack.assign(instruction.arguments.begin(), instruction.arguments.end());
  instruction.op.callBoxed(&stack);
  for (size_t i = 0; i < instruction.adopted.size(); ++i) {
    if (!instruction.adopted[i].defined()) continue;
    const c10::IValue& result = instruction.gives_list ? stack.front().toListRef()[i] : stack[i];
    LEVIN_CHECK(result.toTensor().defined(), "graph.replay",
                "{} left out its result {}, which it gave when it was recorded",
                c10::toString(instruction.op.operator_name()), i);
    adopt(result.toTensor(), instruction.adopted[i]);
  }
  stack.clear();
}

std::vector<at::Tensor> Replay::Impl::finish(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& output : program.outputs) {
    outputs.push_back(output.defined() ? output.clone() : output);
  }
  std::vector<at::Tensor> kept;
  for (const FinalUpdate& update : program.updates) {
    kept.push_back(update.is_kept ? update.value.clone() : update.value);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const FinalUpdate& update = program.updates[i];
    const at::Tensor& target = update.input < inputs.size() ? inputs[update.input] : update.target;
    if (!update.is_gradient) {
      target.copy_(kept[i]);
    } else if (!target.grad().is_same(kept[i])) {
      target.mutable_grad() = kept[i];
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const BoundInput& input = program.inputs[i];
    if (input.is_written && !held[i].is_same(inputs[i])) inputs[i].copy_(held[i]);
  }
  return outputs;
}

/// Of what was given, also where an operator threw.
void Replay::Impl::let_go() {
  stack.clear();
  held.clear();
  for (const BoundInput& input : program.inputs) {
    if (!input.tensor.defined()) continue;
    set_memory(input.tensor.storage(), c10::DataPtr(nullptr, input.tensor.device()));
  }
}

std::vector<at::Tensor> Replay::operator()(const std::vector<at::Tensor>& inputs) {
  // As kernels see it in a forward pass: some give less where no gradient is wanted.
  const c10::AutoGradMode grad_mode(true);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  struct LetGo {
    Impl& impl;
    ~LetGo() { impl.let_go(); }
  } const at_end{*impl_};
  impl_->bind(inputs);
  impl_->run();
  return impl_->finish(inputs);
}

std::string Replay::moved() const { return impl_->moved(); }

}  // namespace levin::graph
