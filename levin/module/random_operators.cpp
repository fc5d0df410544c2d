#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/record_function.h>

#include <memory>
#include <optional>

#include "levin/module/random_operators_impl.h"

namespace levin::detail {
namespace {

thread_local int64_t num_random = 0;

/// Made of other operators, which are seen too: it may be that none of them draws.
bool is_composed(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

std::unique_ptr<at::ObserverContext> look_at(const at::RecordFunction& call) {
  const std::optional<c10::OperatorName> name = call.operator_name();
  if (!name) return nullptr;
  const auto op = c10::Dispatcher::singleton().findOp(*name);
  if (op && op->hasTag(at::Tag::nondeterministic_seeded) && !is_composed(*op)) ++num_random;
  return nullptr;
}

}  // namespace

RandomOperators::RandomOperators()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(&look_at).scopes({at::RecordScope::FUNCTION}))),
      before_(num_random) {}

RandomOperators::~RandomOperators() { at::removeCallback(handle_); }

bool RandomOperators::were_called() const { return num_random > before_; }

}  // namespace levin::detail
