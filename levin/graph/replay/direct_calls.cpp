#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "levin/graph/replay/replay_impl.h"

namespace levin::graph {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

/// The dispatch keys of a dense CPU tensor, and the keys that attempt() excludes.
// Sets of bits, made before main: nothing of them throws.
// NOLINTBEGIN(bugprone-throwing-static-initialization)
const DispatchKeySet kOrdinary = DispatchKeySet(DispatchKey::CPU) |
                                 c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                 c10::autocast_dispatch_keyset;

/// The dispatch keys that each thread begins with.
const DispatchKeySet kOfEachThread({DispatchKey::BackendSelect, DispatchKey::ADInplaceOrView});
// NOLINTEND(bugprone-throwing-static-initialization)

bool is_ordinary(const at::Tensor& tensor) {
  return !tensor.defined() || (tensor.key_set() | kOrdinary) == kOrdinary;
}

bool is_ordinary(const c10::IValue& value) {
  if (value.isTensor()) return is_ordinary(value.toTensor());
  if (!value.isTensorList() && !value.isOptionalTensorList()) return true;
  return std::ranges::all_of(value.toListRef(), [](const c10::IValue& element) {
    return element.isNone() || is_ordinary(element.toTensor());
  });
}

bool is_tensor(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

}  // namespace

bool is_direct(const Instruction& instruction) {
  const c10::OperatorHandle& op = instruction.op;
  return op.hasKernelForDispatchKey(DispatchKey::CPU) &&
         !op.hasKernelForDispatchKey(DispatchKey::BackendSelect) &&
         std::ranges::any_of(instruction.arguments, is_tensor) &&
         std::ranges::all_of(instruction.arguments,
                             [](const c10::IValue& value) { return is_ordinary(value); });
}

bool nobody_looks_on() {
  const c10::impl::LocalDispatchKeySet here = c10::impl::tls_local_dispatch_key_set();
  const DispatchKeySet left_out =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  return (here.included_ - kOfEachThread).empty() && here.excluded_.has_all(left_out) &&
         !here.excluded_.has(DispatchKey::CPU) && !at::hasCallbacks();
}

void call_direct(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &stack);
}

}  // namespace levin::graph
