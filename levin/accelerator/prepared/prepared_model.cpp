#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/stepping/forward_guards.h"

namespace levin {

at::Tensor ForwardConditions::convert(const at::Tensor& input) const {
  return settings_->precision.convert(input);
}

struct ForwardScope::Guards {
  ForwardGuards guards;
};

ForwardScope::ForwardScope(const ForwardConditions& conditions)
    : guards_(new Guards{ForwardGuards(*conditions.settings_)}) {}

ForwardScope::~ForwardScope() = default;

namespace detail {
namespace {

thread_local ModuleCall* innermost_call = nullptr;

}  // namespace

struct ModuleCall::Impl {
  Impl(const void* key, const ForwardSettings& settings)
      : key(key), settings(settings), outer(innermost_call) {}

  void open() {
    if (!casts && !computes) return;
    static const Precision no_precision;
    guards.emplace(casts ? settings.precision : no_precision, settings.device,
                   computes ? settings.synced.get() : nullptr,
                   computes ? settings.strategy.get() : nullptr);
  }

  const void* key;
  const ForwardSettings& settings;
  ModuleCall* outer;
  bool casts = true;     ///< under the precision's autocast
  bool computes = true;  ///< under the strategy
  std::optional<ForwardGuards> guards = {};
};

ModuleCall::ModuleCall(const void* key, const ForwardConditions& conditions)
    : impl_(std::make_unique<Impl>(key, *conditions.settings_)) {
  impl_->open();
  innermost_call = this;
}

ModuleCall::~ModuleCall() {
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(innermost_call == this, "calls end in the order of a stack");
  impl_->guards.reset();
  innermost_call = impl_->outer;
}

ModuleCall& ModuleCall::newest(const void* key) {
  for (ModuleCall* call = innermost_call; call != nullptr; call = call->impl_->outer) {
    if (call->impl_->key == key) return *call;
  }
  TORCH_INTERNAL_ASSERT(false, "a pointer that a prepared model's -> gave was kept");
}

void ModuleCall::open_inside(ModuleCall* call, const ModuleCall* outermost) {
  if (call != outermost) open_inside(call->impl_->outer, outermost);
  call->impl_->open();
}

void ModuleCall::end(const void* key) {
  ModuleCall* outermost = &newest(key);
  outermost->impl_->computes = false;
  for (ModuleCall* call = innermost_call; call != nullptr; call = call->impl_->outer) {
    if (call->impl_->key != key) continue;
    call->impl_->casts = false;
    outermost = call;
  }
  // Scopes end in the order of a stack; scopes that continue are opened anew.
  ModuleCall* const beyond = outermost->impl_->outer;
  for (ModuleCall* call = innermost_call; call != beyond; call = call->impl_->outer) {
    call->impl_->guards.reset();
  }
  open_inside(innermost_call, outermost);
}

}  // namespace detail
}  // namespace levin
