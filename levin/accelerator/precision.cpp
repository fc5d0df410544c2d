#include "levin/accelerator/precision.h"

#include <ATen/autocast_mode.h>

#include "levin/base/check.h"

namespace levin {

Precision parse_precision(std::string_view name) {
  if (name == "32-true" || name == "32" || name == "no") return {"32-true", std::nullopt};
  if (name == "bf16-mixed" || name == "bf16") return {"bf16-mixed", at::kBFloat16};
  LEVIN_FAIL("accelerator.precision",
             "got '{}', wanted 32-true (also 32, no) or bf16-mixed (also bf16)", name);
}

AutocastGuard::AutocastGuard(const Precision& precision, at::DeviceType device)
    : active_(precision.autocast.has_value()), device_(device) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  was_dtype_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *precision.autocast);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_dtype_);
}

}  // namespace levin
