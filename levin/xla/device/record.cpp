// Operators as they are called: recorded, and their results made without contents.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_local_scalar_dense.h>

#include "levin/base/check.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) visit(element.toTensor());
    }
  }
}

bool is_here(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == at::kXLA;
}

/// The list with each tensor replaced, if it is one of tensors.
template <class Replace>
c10::IValue replaced(const c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) return replace(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(replace(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

}  // namespace

graph::Recorder& Runtime::Impl::recording() {
  if (recorder == nullptr) {
    recorder = std::make_unique<graph::Recorder>(graph::RecorderOptions{
        .allow_host_reads = true, .allow_stale = true, .sources = wants_sources()});
    if (names) {
      for (const NamedTensor& named : names()) recorder->name_state(named.name, named.tensor);
    }
  }
  return *recorder;
}

/// With contents.
void Runtime::Impl::prepare_own(const at::Tensor& argument) {
  Contents& contents = Contents::of(argument);
  check_not_lost(contents);
  LEVIN_CHECK(contents.runtime.get() == this, "xla.closed",
              "a tensor of a device xla that has been closed; keep the Accelerator, or what "
              "Runtime::open gave, as long as its tensors");
  if (contents.buffers.empty() && !contents.is_pending) add_zeros(contents);
  if (!contents.is_base(argument)) recording().meet(contents.base());
}

/// An argument of the host as the recorder takes it: on the device unless it is a number.
at::Tensor Runtime::Impl::prepared(const at::Tensor& argument) {
  LEVIN_CHECK(argument.is_cpu(), "xla.device",
              "an operator of tensors on xla and on {}; move them to one device",
              c10::str(argument.device()));
  if (argument.unsafeGetTensorImpl()->is_wrapped_number()) return argument;
  if (argument.dim() == 0 && argument.is_floating_point()) {
    remember_number(argument);
    return argument;
  }
  at::Tensor copy = Contents::make_tensor(shared_from_this(), argument.sizes(), argument.strides(),
                                          argument.scalar_type());
  upload(Contents::of(copy), argument, /*split=*/false);
  return copy;
}

/// Those of the host first: for them all that was recorded before may have to run.
void Runtime::Impl::prepare(std::vector<c10::IValue>& stack, size_t first) {
  const at::NoGradGuard no_grad;
  const auto is_ready = [](const at::Tensor& tensor) {
    return !tensor.defined() || is_here(tensor);
  };
  for (size_t i = first; i < stack.size(); ++i) {
    bool are_ready = true;
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) { are_ready &= is_ready(tensor); });
    if (are_ready) continue;
    stack[i] = replaced(stack[i], [&](const at::Tensor& tensor) {
      return is_ready(tensor) ? tensor : prepared(tensor);
    });
  }
  for (size_t i = first; i < stack.size(); ++i) {
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (is_here(tensor)) prepare_own(tensor);
    });
  }
}

/// If the host has changed it since this recording read it, the recording ends here: it holds one
/// value of each.
void Runtime::Impl::remember_number(const at::Tensor& number) {
  const uint32_t version = number._version();
  const auto known = numbers.find(number.unsafeGetTensorImpl());
  if (known != numbers.end()) {
    if (known->second.version == version) return;
    flush("the host changes a number in it");
  }
  numbers[number.unsafeGetTensorImpl()] = {number, version, number.item().toDouble()};
}

/// What nobody has written is zeros, whatever the tensor was made by.
void Runtime::Impl::add_zeros(Contents& contents) {
  // Not empty(): the recorder takes the contents of that one for the host's.
  static const c10::OperatorHandle zeros =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::zeros", "");
  std::vector<c10::IValue> stack = {c10::IValue(at::IntArrayRef(contents.sizes)),
                                    c10::IValue(contents.dtype), c10::IValue(),
                                    c10::IValue(c10::Device(at::kXLA, 0)), c10::IValue()};
  recording().call(zeros, stack, [&] { stack = {contents.base()}; });
  contents.is_pending = true;
}

void Runtime::Impl::record(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) {
  const std::scoped_lock lock(mutex);
  const size_t first = stack.size() - op.schema().arguments().size();
  check_host_indices(op, at::ArrayRef(stack).slice(first));
  prepare(stack, first);
  std::vector<at::Tensor> written;
  for (size_t i = first; i < stack.size(); ++i) {
    const c10::AliasInfo* alias = op.schema().arguments()[i - first].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) { written.push_back(tensor); });
  }
  const bool is_batch_norm = op.schema().name() == "aten::native_batch_norm";
  if (is_batch_norm && stack[first + 5].toBool()) {
    for (const size_t i : {first + 3, first + 4}) {
      if (stack[i].isTensor()) written.push_back(stack[i].toTensor());
    }
  }
  recording().call(op, stack, [&] { infer(op, stack, shared_from_this()); });
  for (const at::Tensor& tensor : written) {
    if (is_here(tensor)) Contents::of(tensor).is_pending = true;
  }
  const size_t results = stack.size() - op.schema().returns().size();
  for (size_t i = results; i < stack.size(); ++i) {
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (!is_here(tensor)) return;
      Contents& contents = Contents::of(tensor);
      if (contents.buffers.empty()) contents.is_pending = true;
    });
  }
}

}  // namespace levin::xla
