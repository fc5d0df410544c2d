#pragma once
// Precision: in which dtype the forward pass computes.
// Entered by the engine around every step of a module.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin {

/// "32-true" (also "32", "no"): everything in the parameters' dtype. "bf16-mixed" (also "bf16"):
/// parameters stay in float32, operators that gain from it compute in bfloat16 (at::autocast).
struct Precision {
  std::string name = "32-true";
  std::optional<at::ScalarType> autocast;  ///< unset: no autocast
};

/// Throws Error "accelerator.precision" listing the names taken.
LEVIN_API Precision parse_precision(std::string_view name);

/// Autocast in this thread for the time of the object, as `with torch.autocast(...)`; nothing for a
/// precision without it. The cache of cast parameters is cleared when the outermost one ends.
class LEVIN_API AutocastGuard {
 public:
  AutocastGuard(const Precision& precision, at::DeviceType device);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  bool active_;
  at::DeviceType device_;
  bool was_enabled_ = false;
  at::ScalarType was_dtype_ = at::kFloat;
};

}  // namespace levin
