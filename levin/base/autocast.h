#pragma once
// Autocast: whether operators of this thread pick the dtype they compute in (at::autocast).
// Entered by the engine around a module's step, left while gradients are computed.
//
//   const AutocastScope scope(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "levin/base/export.h"

namespace levin {

struct Autocast {
  bool enabled = false;
  at::ScalarType dtype = at::kFloat;
  bool cache = true;  ///< a parameter is cast once, until the outermost scope ends
};

/// Returns the autocast of this thread.
LEVIN_API Autocast current_autocast(at::DeviceType device);

/// Parameters that were cast in this thread's scopes are cast anew.
LEVIN_API void forget_casts();

/// Sets autocast in this thread as long as it lives, as `with torch.autocast(...)`. The cache of
/// cast parameters is cleared when the outermost scope ends.
class LEVIN_API AutocastScope {
 public:
  AutocastScope(at::DeviceType device, const Autocast& autocast);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  at::DeviceType device_;
  Autocast before_;
};

}  // namespace levin
