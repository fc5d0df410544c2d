#include "levin/graph/plain_calls.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace levin::graph {

bool has_plain_calls() {
  using c10::DispatchKey;
  const c10::DispatchKeySet of_each_thread(
      {DispatchKey::BackendSelect, DispatchKey::ADInplaceOrView});
  const auto here = c10::impl::tls_local_dispatch_key_set();
  return !at::GradMode::is_enabled() && (here.included_ - of_each_thread).empty() &&
         !at::autocast::is_autocast_enabled(at::kCPU) && !at::hasCallbacks();
}

}  // namespace levin::graph
