#pragma once
// CallScope: hands a handler what its thread calls, above autograd, autocast and the operators that only call
// others. Capture records the calls that it is handed. Not for users.

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/FunctionRef.h>

namespace levin::interchange {

class CallHandler {
 public:
  virtual ~CallHandler() = default;
  /// proceed() runs the operator, whose results take the place of its arguments on the stack.
  virtual void call(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                    c10::function_ref<void()> proceed) = 0;
};

/// The calls of this thread go to the handler for the time of the object.
class CallScope {
 public:
  explicit CallScope(CallHandler& handler);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  CallHandler* before_;
  c10::impl::IncludeDispatchKeyGuard seen_;
};

}  // namespace levin::interchange
