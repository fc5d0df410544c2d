#include "levin/graph/record/interposer.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/library.h>

#include <atomic>
#include <string_view>
#include <type_traits>
#include <utility>

namespace levin::graph {

using c10::DispatchKey;
using c10::DispatchKeySet;

/// A scope as thread-local state carries it; that may outlive the scope.
struct Handlers : c10::DebugInfoBase, std::enable_shared_from_this<Handlers> {
  std::atomic<OperatorHandler*> handler = nullptr;
  std::shared_ptr<Handlers> outer;
};

namespace {

constexpr std::string_view kHandlersName = "LEVIN_OPERATOR_HANDLERS";
/// Later versions of LibTorch tell kinds by the address of a name. 2.11 numbers them, and does not
/// use this number.
template <class Kind>
constexpr Kind kind_of_handlers() {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(0x6c);
  } else {
    return Kind(&kHandlersName);
  }
}
constexpr auto kHandlers = kind_of_handlers<c10::DebugInfoKind>();

Handlers* innermost() { return static_cast<Handlers*>(c10::ThreadLocalDebugInfo::get(kHandlers)); }

/// Returns whether the call would go to a kernel that only calls other operators. Autograd has
/// already taken such operators apart on the way here, unless it was off.
bool is_composite(const c10::OperatorHandle& op, DispatchKeySet keys) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(keys.highestPriorityTypeId());
}

}  // namespace

struct OperatorCall::Below {
  DispatchKeySet keys;
  Handlers* handlers;
};

void OperatorCall::proceed() {
  /// A handler that runs further operators afterwards does so through the scopes around its own.
  struct Level {
    Below& below;
    Handlers* around = below.handlers;
    ~Level() { below.handlers = around; }
  } const level{below_};
  OperatorHandler* handler = nullptr;
  while (handler == nullptr && below_.handlers != nullptr) {
    handler = below_.handlers->handler;
    below_.handlers = below_.handlers->outer.get();
  }
  if (handler != nullptr) return handler->call(*this);
  op_->redispatchBoxed(below_.keys, &stack_);
}

void OperatorCall::proceed_unseen() { op_->redispatchBoxed(below_.keys, &stack_); }

void OperatorCall::run(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) const {
  run([&] { op.callBoxed(&stack); });
}

void OperatorCall::run(c10::function_ref<void()> code) const {
  auto here = c10::impl::tls_local_dispatch_key_set();
  const DispatchKeySet above =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  if (below_.handlers == nullptr) {
    const c10::impl::ExcludeDispatchKeyGuard below_autograd(above);
    return code();
  }
  const c10::DebugInfoGuard around(kHandlers, below_.handlers->shared_from_this());
  const c10::impl::ForceDispatchKeyGuard seen(
      here.included_ | DispatchKeySet(DispatchKey::Fake),
      (here.excluded_ | above) - DispatchKeySet(DispatchKey::Fake));
  code();
}

void OperatorCall::proceed_as(const c10::OperatorHandle& op) {
  op_ = &op;
  proceed();
}

struct Interposition {
  static void run(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
    const DispatchKeySet below_keys =
        keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Fake);
    OperatorCall::Below below{below_keys, innermost()};
    if (below.handlers == nullptr || is_composite(op, below_keys)) {
      return op.redispatchBoxed(below_keys, stack);
    }
    const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchKey::Fake);
    OperatorCall call(op, *stack, below);
    call.proceed();
  }
};

struct HandlerScope::State {
  explicit State(std::shared_ptr<Handlers> handlers)
      : handlers(std::move(handlers)), carried(kHandlers, this->handlers) {}

  std::shared_ptr<Handlers> handlers;
  c10::DebugInfoGuard carried;
  c10::impl::IncludeDispatchKeyGuard seen{DispatchKey::Fake};
};

HandlerScope::HandlerScope(OperatorHandler& handler) {
  auto handlers = std::make_shared<Handlers>();
  handlers->handler = &handler;
  if (innermost() != nullptr) handlers->outer = innermost()->shared_from_this();
  state_ = std::make_unique<State>(std::move(handlers));
}

HandlerScope::~HandlerScope() { state_->handlers->handler = nullptr; }

struct UnseenScope::State {
  c10::impl::ExcludeDispatchKeyGuard unseen{DispatchKey::Fake};
};

UnseenScope::UnseenScope() : state_(std::make_unique<State>()) {}
UnseenScope::~UnseenScope() = default;

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Interposition::run>());
}

}  // namespace levin::graph
