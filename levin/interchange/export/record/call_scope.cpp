#include "levin/interchange/export/record/call_scope.h"

#include <torch/library.h>

namespace levin::interchange {
namespace {

/// Above autocast, autograd and the operators that only call others; nothing of LibTorch uses it.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

thread_local CallHandler* current = nullptr;

void interpose(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
  if (current == nullptr) return op.redispatchBoxed(below, stack);
  current->call(op, *stack, [&] { op.redispatchBoxed(below, stack); });
}

}  // namespace

CallScope::CallScope(CallHandler& handler) : before_(current), seen_(kKey) { current = &handler; }
CallScope::~CallScope() { current = before_; }

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&interpose>());
}

}  // namespace levin::interchange
