#include "levin/interchange/export/record/capture.h"

#include <ATen/core/Dict.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <string_view>

#include "levin/base/check.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/tensors_in.h"
#include "levin/interchange/export/record/capture_impl.h"
#include "levin/interchange/export/record/output_tree.h"

namespace levin::interchange {
namespace {

using c10::IValue;
using Origin = RecordedValue::Origin;

/// It hands memory out and leaves what is in it.
bool leaves_memory_as_it_is(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
}

/// nonzero, masked_select, x.index({mask}): how many there are depends on values.
bool has_size_of_values(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (op.schema().name() == "aten::index") {
    for (const IValue& index : stack.back().toListRef()) {
      if (!index.isTensor()) continue;
      const at::ScalarType dtype = index.toTensor().scalar_type();
      if (dtype == at::kBool || dtype == at::kByte) return true;
    }
    return false;
  }
  if (op.schema().name() == "aten::one_hot") return stack.back().toInt() < 0;
  return op.hasTag(at::Tag::dynamic_output_shape);
}

/// The host sees its result: a value of a tensor.
bool reads_on_host(const c10::FunctionSchema& schema) {
  bool takes_tensor = false;
  for (const c10::Argument& formal : schema.arguments()) {
    takes_tensor |= formal.type()->isSubtypeOf(*c10::TensorType::get());
  }
  // Facts about the dtype and the layout are the same for every call.
  for (const char* fact : {"aten::is_", "aten::_has_compatible", "aten::result_type", "aten::dim",
                           "aten::can_cast", "aten::size", "aten::stride", "aten::numel"}) {
    if (schema.name().starts_with(fact) && schema.name() != "aten::is_nonzero") return false;
  }
  return takes_tensor && !schema.returns().empty() &&
         schema.returns().front().type()->kind() != c10::TypeKind::TensorType &&
         schema.returns().front().type()->kind() != c10::TypeKind::ListType;
}

}  // namespace

Capture::Capture(const std::vector<ModuleTensor>& module_tensors,
                 const std::vector<at::Tensor>& inputs, const CaptureOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
  for (size_t i = 0; i < module_tensors.size(); ++i) {
    const ModuleTensor& each = module_tensors[i];
    const Origin origin = each.is_parameter ? Origin::kParameter : Origin::kBuffer;
    // A tensor with two names is known by its first, and is a value under each.
    const auto before = impl_->known.find(each.tensor.unsafeGetTensorImpl());
    const ValueId first = before == impl_->known.end() ? kNoValue : before->second.id;
    impl_->add(each.tensor, origin, i);
    if (first != kNoValue) impl_->known.at(each.tensor.unsafeGetTensorImpl()).id = first;
    impl_->watch.note(each.tensor, /*is_independent=*/false, /*is_uninitialized=*/false);
    impl_->state.push_back(each.tensor);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    impl_->add(inputs[i], Origin::kInput, i);
    impl_->watch.note(inputs[i], /*is_independent=*/false, /*is_uninitialized=*/false);
    impl_->state.push_back(inputs[i]);
  }
}

Capture::~Capture() {
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, before] : impl_->kept) {
    if (tensor.sizes() == before.sizes()) tensor.copy_(before);
  }
}

Recording Capture::record(const std::function<IValue()>& function) {
  IValue result;
  {
    const CallScope scope(*impl_);
    result = function();
  }
  OutputTree tree = output_tree_of(result);
  for (const IValue& leaf : tree.leaves) {
    RecordedArgument& output = impl_->recording.outputs.emplace_back();
    if (leaf.isTensor() && leaf.toTensor().defined()) {
      output.kind = RecordedArgument::Kind::kTensor;
      output.values = {impl_->read_tensor(leaf.toTensor(), Impl::Use::kRead)};
    } else if (!leaf.isTensor()) {
      output.constant = leaf;
    }
  }
  impl_->check_state();
  impl_->check_constants();
  impl_->recording.output_tree = std::move(tree.text);
  return std::move(impl_->recording);
}

CallMode Capture::Impl::mode() {
  const bool grad_enabled = c10::GradMode::is_enabled();
  return {.grad_enabled = grad_enabled,
          .autocast = current_autocast(options.device),
          .in_function = !grad_enabled && function.finds()};
}

void Capture::Impl::call(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                         c10::function_ref<void()> proceed) {
  const c10::FunctionSchema& schema = op.schema();
  if (reads_on_host(schema)) {
    if (schema.name() == "aten::equal" && is_any_branch(stack, proceed)) return;
    LEVIN_FAIL("interchange.export.read",
               "the module reads a tensor's value by {}{}; a torch.export program cannot depend on "
               "values: compute with tensors (torch::where), or export the part of the module that "
               "reads none",
               schema.name(), place());
  }
  LEVIN_CHECK(!has_size_of_values(op, stack), "interchange.export.values",
              "the size of the result of {} depends on values{}; levin exports only sizes that "
              "follow from the sizes of the inputs: use torch::where, or a mask",
              schema.name(), place());
  LEVIN_CHECK(
      !schema.name().starts_with("levin::"), "interchange.export.operator",
      "{} is an operator of levin, which Python does not have{}; export the part of the module "
      "without it (the logits, not the loss)",
      schema.name(), place());
  RecordedCall call{.op = op, .mode = mode()};
  if (options.frames) call.frames = torch::unwind::unwind();
  const torch::jit::Stack arguments(stack.end() - static_cast<int64_t>(schema.arguments().size()),
                                    stack.end());
  read(op, arguments, call);
  proceed();
  const torch::jit::Stack results(stack.end() - static_cast<int64_t>(schema.returns().size()),
                                  stack.end());
  add_results(results, call);
  note_writes(call, arguments, results);
  recording.calls.push_back(std::move(call));
}

/// Returns whether the code after aten::equal may do for all values what it does now. LibTorch's attention asks
/// whether query, key and value are one tensor, and computes the same more slowly where they are not.
bool Capture::Impl::is_any_branch(const torch::jit::Stack& stack,
                                  c10::function_ref<void()> proceed) {
  const at::Tensor left = stack[stack.size() - 2].toTensor(), right = stack.back().toTensor();
  proceed();
  if (left.is_same(right)) return true;
  return !stack.back().toBool() && attention.finds();
}

void Capture::Impl::read(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                         RecordedCall& call) {
  const auto& formals = op.schema().arguments();
  for (size_t i = 0; i < formals.size(); ++i) {
    try {
      call.arguments.push_back(argument(formals[i], stack[i], use_of(op, formals[i])));
    } catch (const Error& error) {
      if (error.id() != "interchange.export.operator") throw;
      LEVIN_FAIL("interchange.export.operator", "{} of {}{}", error.text(), op.schema().name(),
                 place());
    }
  }
}

RecordedArgument Capture::Impl::argument(const c10::Argument& formal, const IValue& value,
                                         Use use) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return {};
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return {.constant = tensor.item()};
    return {.kind = RecordedArgument::Kind::kTensor, .values = {read_tensor(tensor, use)}};
  }
  if (value.isTensorList() || value.isOptionalTensorList()) {
    RecordedArgument made{.kind = RecordedArgument::Kind::kTensors};
    for (const IValue& item : value.toListRef()) {
      const bool is_tensor = item.isTensor() && item.toTensor().defined();
      made.values.push_back(is_tensor ? read_tensor(item.toTensor(), use) : kNoValue);
    }
    return made;
  }
  LEVIN_CHECK(!value.isGenerator(), "interchange.export.operator",
              "a generator other than the default one cannot be exported: the argument {}",
              formal.name());
  LEVIN_CHECK(
      !value.isObject() && !value.isCustomClass() && !value.isStream() && !value.isStorage(),
      "interchange.export.operator", "an object cannot be exported: the argument {}",
      formal.name());
  return {.constant = value};
}

Capture::Impl::Use Capture::Impl::use_of(const c10::OperatorHandle& op,
                                         const c10::Argument& formal) {
  if (formal.alias_info() == nullptr) return Use::kRead;
  if (!graph::is_written(formal)) return Use::kView;
  if (formal.kwarg_only()) return Use::kFill;  // out=
  for (const char* fill : {"fill_", "zero_", "copy_", "uniform_", "normal_", "random_",
                           "bernoulli_", "exponential_", "geometric_", "log_normal_", "cauchy_"}) {
    if (op.schema().name() == std::string("aten::") + fill) return Use::kFill;
  }
  return Use::kWrite;
}

void Capture::Impl::note_gradient(ValueId id, const at::Tensor& tensor) {
  const RecordedValue& value = recording.values[id];
  if (value.origin != Origin::kResult || !tensor.requires_grad() || tensor.is_leaf()) return;
  const CallMode made_in = recording.calls[value.index].mode;
  const auto& function = tensor.grad_fn();
  constexpr std::string_view kOwnFunctions = "CppNode<levin::";
  const std::string name = function == nullptr ? "" : function->name();
  if (name.find("CppNode<") == std::string::npos) return;
  // levin's own functions have the gradients of the operators that they are made of.
  LEVIN_CHECK(!options.training || name.find(kOwnFunctions) != std::string::npos,
              "interchange.export.function",
              "{} has a custom backward{}, which a torch.export program cannot hold; export the "
              "module in evaluation mode (eval()), or write forward with operators only",
              name, place());
  // It computed with gradients, and returned a result detached from them.
  LEVIN_CHECK(
      !options.training || !made_in.grad_enabled, "interchange.export.function",
      "{} recomputes its block in backward (activation_checkpoint){}, which a torch.export program "
      "cannot do; export the module without activation checkpointing: it computes the same",
      name, place());
  if (made_in.grad_enabled) return;
  // Its operators are recorded as if gradients were on.
  for (size_t i = value.index + 1; i-- > 0;) {
    CallMode& each = recording.calls[i].mode;
    if (each.grad_enabled || each.in_function != made_in.in_function) break;
    each = {.grad_enabled = true, .autocast = each.autocast};
  }
}

void Capture::Impl::add_results(const torch::jit::Stack& stack, RecordedCall& call) {
  const size_t index = recording.calls.size();
  const bool writes = std::ranges::any_of(call.op.schema().arguments(), graph::is_written);
  const auto add_one = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return kNoValue;
    const auto found = known.find(tensor.unsafeGetTensorImpl());
    const bool is_known = found != known.end() && !found->second.tensor.expired();
    const ValueId before = is_known ? found->second.id : kNoValue;
    const ValueId id = add(tensor, Origin::kResult, index);
    // An operator that writes a parameter, a buffer or an input in place returns it: it keeps its name. A cast that
    // casts nothing returns it too, and is what comes after for an input, whose dtype may be another.
    if (is_known) {
      const Origin origin = recording.values[before].origin;
      const bool keeps = origin == Origin::kInput ? writes : origin != Origin::kResult;
      if (keeps) known.at(tensor.unsafeGetTensorImpl()).id = before;
    }
    return id;
  };
  for (const IValue& value : stack) {
    RecordedResult result;
    if (value.isTensor()) {
      result.values = {add_one(value.toTensor())};
    } else if (value.isTensorList()) {
      result.is_list = true;
      for (const IValue& item : value.toListRef())
        result.values.push_back(add_one(item.toTensor()));
    }
    call.results.push_back(std::move(result));
  }
}

void Capture::Impl::note_writes(const RecordedCall& call, const torch::jit::Stack& arguments,
                                const torch::jit::Stack& results) {
  bool is_independent = !call.op.hasTag(at::Tag::nondeterministic_seeded);
  const auto for_each = [](const IValue& value, const auto& visit) {
    graph::for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined()) visit(tensor);
    });
  };
  for (const IValue& argument : arguments) {
    for_each(argument, [&](const at::Tensor& tensor) {
      is_independent = is_independent && watch.is_independent(tensor);
    });
  }
  const bool is_uninitialized = leaves_memory_as_it_is(call.op);
  const auto note = [&](const at::Tensor& tensor) {
    watch.note(tensor, is_independent, is_uninitialized);
  };
  const auto& formals = call.op.schema().arguments();
  for (size_t i = 0; i < formals.size(); ++i) {
    if (graph::is_written(formals[i]) || is_written_unsaid(formals[i]))
      for_each(arguments[i], note);
  }
  const auto& returns = call.op.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    // A view's memory is as it was.
    if (returns[i].alias_info() == nullptr) for_each(results[i], note);
  }
}

}  // namespace levin::interchange
