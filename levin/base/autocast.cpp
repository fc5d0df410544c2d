#include "levin/base/autocast.h"

#include <ATen/autocast_mode.h>

namespace levin {
namespace {

void set_autocast(at::DeviceType device, const Autocast& autocast) {
  at::autocast::set_autocast_enabled(device, autocast.enabled);
  at::autocast::set_autocast_dtype(device, autocast.dtype);
  at::autocast::set_autocast_cache_enabled(autocast.cache);
}

}  // namespace

Autocast current_autocast(at::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device),
          at::autocast::is_autocast_cache_enabled()};
}

void forget_casts() { at::autocast::clear_cache(); }

AutocastScope::AutocastScope(at::DeviceType device, const Autocast& autocast)
    : device_(device), before_(current_autocast(device)) {
  set_autocast(device, autocast);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set_autocast(device_, before_);
}

}  // namespace levin
