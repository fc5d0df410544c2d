// Recordings that are as one before: their calls are compared and not recorded, and their program
// is run without a graph being made.
#include <ATen/ScalarOps.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "levin/graph/tensors_in.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

using Source = CallTree::NumberSource;

/// Restores the arguments of a call from its remembered form.
class ArgumentReader {
 public:
  ArgumentReader(const CallTree::Call& call, const Trace& trace,
                 const std::vector<at::Tensor>& memory)
      : call_(call), trace_(trace), memory_(memory) {}

  c10::IValue read(const c10::IValue& argument) {
    if (argument.isInt()) return static_cast<int64_t>(next_number());
    if (argument.isDouble()) return std::bit_cast<double>(next_number());
    return graph::with_tensors_replaced(argument, [&](const at::Tensor&) { return next_tensor(); });
  }

 private:
  uint64_t next_number() { return trace_.numbers()[call_.num_numbers + num_numbers_++]; }

  at::Tensor next_tensor() {
    const TensorPlace& place = call_.tensors[num_tensors_++];
    switch (place.kind) {
      case TensorPlace::Kind::kUndefined:
        return {};
      case TensorPlace::Kind::kHostNumber:
        return trace_.host_numbers()[place.memory];
      case TensorPlace::Kind::kWrappedNumber:
        return wrapped_number(place.dtype);
      case TensorPlace::Kind::kDevice:
        return Contents::view_of(memory_[place.memory], place.sizes, place.strides, place.offset,
                                 place.dtype);
    }
    return {};
  }

  at::Tensor wrapped_number(at::ScalarType dtype) {
    const uint64_t bits = next_number();
    at::Scalar number = static_cast<int64_t>(bits);
    if (dtype == at::kDouble) number = std::bit_cast<double>(bits);
    if (dtype == at::kBool) number = bits != 0;
    at::Tensor tensor = c10::scalar_to_tensor(number);
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  }

  const CallTree::Call& call_;
  const Trace& trace_;
  const std::vector<at::Tensor>& memory_;
  size_t num_numbers_ = 0;
  size_t num_tensors_ = 0;
};

/// Returns the source of a program's number that is an argument of a call; nothing if it cannot be
/// told.
std::optional<Source> source_of_call(const CallTree::Call& call, size_t argument) {
  const auto& numbers = call.key.numbers;
  const auto is_its = [&](const CallNumber& number) { return number.argument == argument; };
  if (std::ranges::count_if(numbers, is_its) != 1) return std::nullopt;
  const auto place = std::ranges::find_if(numbers, is_its) - numbers.begin();
  const c10::IValue& value = call.arguments[argument];
  bool is_integer = value.isInt();
  if (value.isTensor()) {  // a wrapped number
    const auto wrapped =
        std::ranges::find(call.tensors, TensorPlace::Kind::kWrappedNumber, &TensorPlace::kind);
    if (std::ranges::count(call.tensors, TensorPlace::Kind::kWrappedNumber, &TensorPlace::kind) !=
        1) {
      return std::nullopt;
    }
    is_integer = wrapped->dtype != at::kDouble;
  }
  return Source{.kind = Source::Kind::kOfCall,
                .place = call.num_numbers + static_cast<size_t>(place),
                .is_integer = is_integer};
}

}  // namespace

void Recording::follow(CallTree::Call& call, std::vector<c10::IValue>& stack, size_t first,
                       Contents* filled) {
  trace_.go(call);
  if (filled != nullptr) {
    trace_.meet(*filled);
    filled->is_pending = true;
    return;
  }
  for (const uint32_t written : call.written) {
    Contents::of(*trace_.tensors()[written]).is_pending = true;
  }
  Inferred::put(call.returns, trace_.tensors(), stack, first, [&](const Inferred::Result& result) {
    at::Tensor made = Contents::make_tensor(owner_.shared_from_this(), result.sizes, result.strides,
                                            result.dtype);
    Contents& contents = Contents::of(made);
    trace_.meet(contents);
    contents.is_pending = true;
    return made;
  });
}

/// Memory that nobody holds any more is stood in for: the recorder is to see that it was there.
void Recording::record_followed() {
  const std::shared_ptr<RuntimeImpl> self = owner_.shared_from_this();
  std::vector<at::Tensor> memory;
  const auto meet = [&](at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
    const Contents* contents = trace_.memory()[memory.size()];
    memory.push_back(contents != nullptr ? contents->base()
                                         : Contents::make_tensor(self, sizes, strides, dtype));
    return memory.back();
  };
  for (const CallTree::Call* call : CallTree::path_to(*trace_.at())) {
    for (const TensorPlace& place : call->tensors) {
      if (place.kind != TensorPlace::Kind::kDevice) continue;
      if (place.memory == memory.size()) meet({}, {}, place.dtype);  // it was there before
      const Contents& contents = Contents::of(memory[place.memory]);
      const bool is_whole = place.offset == 0 && place.dtype == contents.dtype &&
                            place.sizes == contents.sizes && place.strides == contents.strides;
      if (!is_whole) recorder_->meet(memory[place.memory]);
    }
    ArgumentReader reader(*call, trace_, memory);
    std::vector<c10::IValue> stack;
    for (const c10::IValue& argument : call->arguments) stack.push_back(reader.read(argument));
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
        call->key.schema->name().c_str(), call->key.schema->overload_name().c_str());
    const graph::Node* node = recorder_->call(op, stack, [&] {
      std::vector<const at::Tensor*> tensors;
      for (const c10::IValue& argument : stack) {
        graph::for_each_tensor(argument, [&](const at::Tensor& tensor) {
          if (tensor.defined()) tensors.push_back(&tensor);
        });
      }
      Inferred::put(call->returns, tensors, stack, 0, [&](const Inferred::Result& result) {
        return meet(result.sizes, result.strides, result.dtype);
      });
    });
    if (node == nullptr) continue;
    calls_of_nodes_[node] = call;
    if (call->is_optimizers) memo_.log.optimizer_nodes.insert(node);
  }
}

CallTree::Call Recording::call_of(at::ArrayRef<c10::IValue> arguments,
                                  const c10::OperatorHandle& op) const {
  CallTree::Call call = {.key = trace_.key(),
                         .is_optimizers = memo_.log.in_optimizer,
                         .num_numbers = trace_.numbers().size()};
  uint32_t place = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written = writes(op, arguments, i);
    call.arguments.push_back(
        graph::with_tensors_replaced(arguments[i], [&](const at::Tensor& tensor) {
          call.tensors.push_back(trace_.place_of(tensor));
          if (!tensor.defined()) return tensor;
          if (is_written && tensor.is_xla()) call.written.push_back(place);
          ++place;
          return at::Tensor();
        }));
  }
  return call;
}

void Recording::remember_call(CallTree::Call&& call, at::ArrayRef<c10::IValue> results,
                              const graph::Node* node, Contents* filled) {
  if (filled != nullptr) {
    call.returns = {{.results = {{.source = Inferred::Source::kNew,
                                  .dtype = filled->dtype,
                                  .sizes = {filled->sizes.begin(), filled->sizes.end()},
                                  .strides = {filled->strides.begin(), filled->strides.end()}}}}};
  } else {
    call.returns = *memo_.inferred.last();
  }
  CallTree::Call& added = memo_.calls.add(*trace_.at(), std::move(call));
  trace_.go(added);
  trace_.meet_results(results);
  if (node != nullptr) calls_of_nodes_[node] = &added;
}

void Recording::remember_end(std::vector<uint32_t> seen, const KnownProgram& known,
                             const std::vector<Contents*>& results) {
  const Program& program = known.program;
  CallTree::End end = {.seen = std::move(seen),
                       .numbers = trace_.numbers(),
                       .is_given_anew = std::vector<bool>(trace_.numbers().size(), false),
                       .executable = known.executable,
                       .draws_random_numbers = program.draws_random_numbers};
  for (const graph::Node* input : program.inputs) {
    const auto place = trace_.place_of(Contents::of(input->tensor()));
    if (!place) return;
    end.inputs.push_back(*place);
  }
  for (const ProgramOutput& output : program.outputs) {
    const Contents& contents =
        output.updates != nullptr ? Contents::of(output.updates->tensor()) : *results[output.index];
    const auto place = trace_.place_of(contents);
    if (!place) return;
    end.outputs.push_back(*place);
  }
  const auto source_of = [&](const RuntimeNumber& number) -> std::optional<Source> {
    if (number.tensor != nullptr) {
      const auto place = trace_.place_of_host_number(number.tensor->tensor());
      if (!place) return std::nullopt;
      return Source{.kind = Source::Kind::kOfHost, .place = *place};
    }
    if (number.node == nullptr) return Source{.value = number.value};
    const auto call = calls_of_nodes_.find(number.node);
    if (call == calls_of_nodes_.end()) return std::nullopt;
    const std::optional<Source> source = source_of_call(*call->second, number.argument);
    if (source) end.is_given_anew[source->place] = true;
    return source;
  };
  for (const auto& [numbers, sources] : {std::pair(&program.numbers, &end.sources),
                                         std::pair(&program.wide_numbers, &end.wide_sources)}) {
    for (const RuntimeNumber& number : *numbers) {
      const std::optional<Source> source = source_of(number);
      if (!source) return;
      sources->push_back(*source);
    }
  }
  memo_.calls.add_end(*trace_.at(), std::move(end));
}

void Recording::run_end(const CallTree::End& end) {
  if (end.executable == nullptr) return;
  const auto value_of = [&](const Source& source) {
    if (source.kind == Source::Kind::kFixed) return source.value;
    if (source.kind == Source::Kind::kOfHost) {
      return numbers_.at(trace_.host_numbers()[source.place].unsafeGetTensorImpl()).value;
    }
    const uint64_t bits = trace_.numbers()[source.place];
    return source.is_integer ? static_cast<double>(static_cast<int64_t>(bits))
                             : std::bit_cast<double>(bits);
  };
  RunArguments arguments = {.draws_random_numbers = end.draws_random_numbers};
  for (const uint32_t place : end.inputs) arguments.inputs.push_back(trace_.memory()[place]);
  for (const Source& source : end.sources) arguments.numbers.push_back(value_of(source));
  for (const Source& source : end.wide_sources) arguments.wide_numbers.push_back(value_of(source));
  devices_.execute(*end.executable, arguments);
  devices_.take_outputs(end.outputs.size(),
                        [&](size_t i) { return trace_.memory()[end.outputs[i]]; });
  ++owner_.report.trace_hits;
}

}  // namespace levin::xla
