#include "levin/xla/device/step.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/compile/held_inputs.h"
#include "levin/xla/device/reads/read_guards_impl.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

using Tensors = std::vector<at::Tensor>;

bool is_of_device(const at::Tensor& tensor) { return tensor.defined() && tensor.is_xla(); }

/// The place of a state tensor when it was recorded: another one later is other memory.
struct StatePlace {
  at::Tensor tensor;
  const c10::StorageImpl* storage;
};

class StepRunner final : public graph::Runner {
 public:
  StepRunner(std::shared_ptr<Runtime> runtime, const graph::Graph& graph)
      : runtime_(std::move(runtime)), impl_(RuntimeImpl::of(*runtime_)), guards_(impl_, graph) {
    const std::scoped_lock lock(impl_.mutex);
    size_t place = 0;
    for (const graph::Node& node : graph.nodes()) {
      if (node.opcode() == graph::Opcode::kPlaceholder) places_[&node] = place++;
      if (node.opcode() == graph::Opcode::kGetAttr && node.tensor().is_xla()) {
        state_.push_back({node.tensor(), node.tensor().storage().unsafeGetStorageImpl()});
        state_storages_.insert(state_.back().storage);
      }
      num_operators_ += node.opcode() == graph::Opcode::kCallFunction ? 1 : 0;
    }
    for (const graph::Value* output : graph.outputs()) {
      types_.push_back(output == nullptr ? graph::ValueType{} : output->type());
    }
    for (const graph::Update& update : graph.updates()) {
      if (update.is_gradient) gradients_.push_back(gradient_of(update, graph.outputs()));
    }
  }

  /// For inputs that lie as these do.
  void prepare(const graph::Graph& graph, const Tensors& inputs) {
    const std::scoped_lock lock(impl_.mutex);
    splits_.clear();
    for (const at::Tensor& input : inputs) splits_.push_back(split_of(input));
    const Binding tensor_of = binding(inputs);
    guards_.prepare(inputs);
    program_ = impl_.memo.lowered(graph, split_dims(tensor_of));
    executable_ = &impl_.memo.executable_of(program_, graph);
  }

  std::optional<Tensors> operator()(const Tensors& inputs) override {
    const std::scoped_lock lock(impl_.mutex);
    impl_.recording.flush("");
    other_read_ = guards_.other(inputs);
    if (other_read_) return std::nullopt;
    const Binding tensor_of = binding(inputs);
    impl_.devices.execute(*executable_, impl_.recording.arguments_of(program_, tensor_of));
    Tensors results(types_.size());
    impl_.devices.take_outputs(program_.outputs.size(), [&](size_t i) -> Contents* {
      const ProgramOutput& output = program_.outputs[i];
      if (output.updates != nullptr) return &Contents::of(tensor_of(*output.updates));
      const graph::ValueType& type = types_[output.index];
      results[output.index] =
          Contents::make_tensor(impl_.shared_from_this(), type.sizes, type.strides, type.dtype);
      return &Contents::of(results[output.index]);
    });
    for (const Gradient& gradient : gradients_) {
      gradient.of.mutable_grad() = results[gradient.output];
    }
    return results;
  }

  const graph::OtherRead* other_read() const override {
    return other_read_ ? &*other_read_ : nullptr;
  }

  std::string reason_not_replayable(const Tensors& inputs) const override {
    std::vector<const c10::StorageImpl*> storages;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (split_of(inputs[i]) != splits_[i])
        return fmt::format("input {} has another memory layout", i);
      if (!is_of_device(inputs[i])) continue;
      storages.push_back(inputs[i].storage().unsafeGetStorageImpl());
      if (state_storages_.contains(storages.back())) return fmt::format("input {} is state", i);
    }
    std::ranges::sort(storages);
    if (std::ranges::adjacent_find(storages) != storages.end()) return "two inputs are one tensor";
    for (const StatePlace& place : state_) {
      if (place.tensor.storage().unsafeGetStorageImpl() != place.storage) {
        return "a state tensor has other memory than before";
      }
    }
    return "";
  }

  graph::ReplayReport report() const override { return {.num_operators = num_operators_}; }

 private:
  /// A gradient that the step leaves, to be one of the program's outputs.
  struct Gradient {
    at::Tensor of;
    size_t output;
  };

  static Gradient gradient_of(const graph::Update& update, const graph::Values& outputs) {
    const auto place = std::ranges::find(outputs, update.value);
    const graph::Node& parameter = update.target->node();
    LEVIN_CHECK(parameter.tensor().defined(), "xla.step",
                "the gradient of {}, an input of the step, is kept after it; detach the input, or "
                "reset its gradient within the step",
                parameter.name());
    LEVIN_CHECK(place != outputs.end(), "xla.step",
                "the gradient of {} is a view of another tensor; set it to a copy (clone()) within "
                "the step",
                parameter.name());
    return {parameter.tensor(), static_cast<size_t>(place - outputs.begin())};
  }

  static int64_t split_of(const at::Tensor& tensor) {
    return is_of_device(tensor) ? Contents::of(tensor).split_dim : -1;
  }

  Binding binding(const Tensors& inputs) const {
    return [this, &inputs](const graph::Node& node) -> const at::Tensor& {
      const auto place = places_.find(&node);
      return place == places_.end() ? node.tensor() : inputs[place->second];
    };
  }

  std::shared_ptr<Runtime> runtime_;
  RuntimeImpl& impl_;
  std::unordered_map<const graph::Node*, size_t> places_;
  std::vector<StatePlace> state_;
  std::unordered_set<const c10::StorageImpl*> state_storages_;
  std::vector<int64_t> splits_;
  std::vector<graph::ValueType> types_;
  std::vector<Gradient> gradients_;
  int64_t num_operators_ = 0;
  ReadGuards guards_;
  std::optional<graph::OtherRead> other_read_;
  Program program_;
  const pjrt::Executable* executable_ = nullptr;
};

class StepEngine final : public graph::CompileBackend {
 public:
  explicit StepEngine(std::shared_ptr<Runtime> runtime)
      : runtime_(std::move(runtime)), impl_(RuntimeImpl::of(*runtime_)) {}

  /// Processes that run programs together would not all find the same.
  bool compares_host_reads() const override { return impl_.devices.world().size() == 1; }

  Tensors first(const graph::RecordedCall& call) override {
    return recorded(call, /*is_first=*/true).results;
  }
  graph::RecordingResult record(const graph::RecordedCall& call) override {
    return recorded(call, /*is_first=*/false);
  }

  std::unique_ptr<graph::Runner> make_runner(graph::Graph& graph,
                                             const std::function<void(graph::Graph&)>&,
                                             const graph::ReplayOptions&) override {
    auto runner = std::make_unique<StepRunner>(runtime_, graph);
    runner->prepare(graph, inputs_);
    inputs_.clear();
    return runner;
  }

 private:
  /// Backward may go through the results of the first call.
  graph::RecordingResult recorded(const graph::RecordedCall& call, bool is_first) {
    begin(call);
    const graph::HeldInputs held(call.inputs, call.names);
    const at::Tensor generator = at::detail::getDefaultCPUGenerator().get_state();
    graph::RecordingResult recorded;
    try {
      recorded.results = call.function();
    } catch (...) {
      impl_.recording.end_step();
      impl_.recording.flush("");
      impl_.recording.forget_step();
      throw;
    }
    const std::scoped_lock lock(impl_.mutex);
    recorded.reason_not_recorded = impl_.recording.end_step();
    if (!is_first) graph::detach_results(recorded.results, call.inputs);
    Tensors values = recorded.results;
    for (const at::Tensor& value : call.more()) values.push_back(value);
    if (recorded.reason_not_recorded.empty()) recorded.reason_not_recorded = reason_of_memory(call);
    if (recorded.reason_not_recorded.empty())
      recorded.reason_not_recorded = reason_of_host(held, generator, values);
    if (recorded.reason_not_recorded.empty()) {
      recorded.graph = impl_.recording.run_step(call, values, recorded.kept);
      inputs_ = call.inputs;
    }
    impl_.recording.flush("");
    impl_.recording.forget_step();
    return recorded;
  }

  std::string reason_of_memory(const graph::RecordedCall& call) const {
    const at::Tensor other = impl_.recording.with_other_memory();
    if (!other.defined()) return "";
    const auto named = std::ranges::find_if(
        call.state, [&](const NamedTensor& state) { return state.tensor.is_same(other); });
    return fmt::format(
        "{} gets other memory within it through set_data, which a program cannot do; write into it "
        "with copy_()",
        named == call.state.end() ? "a tensor" : named->name);
  }

  /// Describes what the host has done in the step that a program cannot do; empty if nothing.
  static std::string reason_of_host(const graph::HeldInputs& held, const at::Tensor& generator,
                                    const Tensors& values) {
    const auto is_of_host = [](const at::Tensor& value) {
      return value.defined() && !value.is_xla();
    };
    if (std::ranges::any_of(values, is_of_host)) {
      return "it returns or logs a CPU tensor, which a program cannot return; compute it on the "
             "device";
    }
    if (!generator.equal(at::detail::getDefaultCPUGenerator().get_state())) {
      return "the host seeds a random generator, or draws from it; seed it before the step, and "
             "draw with operators (torch::rand)";
    }
    try {
      held.check(values);
    } catch (const Error& error) {
      return error.text();
    }
    return "";
  }

  void begin(const graph::RecordedCall& call) {
    const std::scoped_lock lock(impl_.mutex);
    impl_.recording.flush("");
    impl_.recording.begin_step(call.inputs);
    std::string reason;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const at::Tensor& input = call.inputs[i];
      const std::string name(call.names[i]);
      if (input.defined() && !input.is_xla()) {
        reason = name + " is not on xla; move it there";
      } else if (input.defined() && !Contents::of(input).is_base(input)) {
        reason = name + " is a view of another tensor; give a copy";
      }
      if (!reason.empty()) continue;
      try {
        impl_.recording.recorder().add_input(name, input);
      } catch (const Error& error) {
        reason = error.text();
      }
    }
    impl_.recording.refuse_step(reason);
    for (const NamedTensor& state : call.state) {
      impl_.recording.recorder().name_state(state.name, state.tensor);
    }
  }

  std::shared_ptr<Runtime> runtime_;
  RuntimeImpl& impl_;
  Tensors inputs_;  ///< inputs of the last recording
};

}  // namespace

std::unique_ptr<graph::CompileBackend> make_engine(std::shared_ptr<Runtime> runtime) {
  return std::make_unique<StepEngine>(std::move(runtime));
}

}  // namespace levin::xla
