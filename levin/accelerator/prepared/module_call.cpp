#include "levin/accelerator/prepared/module_call.h"

#include <c10/util/Exception.h>

#include <utility>

namespace levin {
namespace {

thread_local ModuleCall* innermost_call = nullptr;

}  // namespace

ModuleCall::ModuleCall(const void* key, const ForwardConditions& conditions)
    : key_(key), conditions_(conditions), outer_(innermost_call) {
  open();
  innermost_call = this;
}

ModuleCall::~ModuleCall() {
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(innermost_call == this, "calls end in the order of a stack");
  close();
  innermost_call = outer_;
}

ModuleCall& ModuleCall::newest(const void* key) {
  for (ModuleCall* call = innermost_call; call != nullptr; call = call->outer_) {
    if (call->key_ == key) return *call;
  }
  TORCH_INTERNAL_ASSERT(false, "a pointer that a prepared model's -> gave was kept");
}

void ModuleCall::open() {
  if (!casts_ && !computes_) return;
  static const Precision no_precision;
  scope_.emplace(casts_ ? conditions_.precision : no_precision, conditions_.device,
                 computes_ ? conditions_.synced.get() : nullptr,
                 computes_ ? conditions_.strategy.get() : nullptr);
}

void ModuleCall::close() { scope_.reset(); }

void ModuleCall::open_inside(ModuleCall* call, const ModuleCall* outermost) {
  if (call != outermost) open_inside(call->outer_, outermost);
  call->open();
}

void ModuleCall::end(const void* key) {
  ModuleCall* outermost = &newest(key);
  outermost->computes_ = false;
  for (ModuleCall* call = innermost_call; call != nullptr; call = call->outer_) {
    if (call->key_ != key) continue;
    call->casts_ = false;
    outermost = call;
  }
  // Scopes end as a stack does; those that go on are opened anew.
  for (ModuleCall* call = innermost_call; call != outermost->outer_; call = call->outer_)
    call->close();
  open_inside(innermost_call, outermost);
}

}  // namespace levin
