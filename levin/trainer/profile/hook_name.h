#pragma once
// Names of the hooks of callbacks, for the profiler.
//
//   hook_name(&Callback::on_fit_start);   // "on_fit_start"
// Not for users.

#include <string>

namespace levin::detail {

/// Returns the name by the bytes of a pointer to a virtual function, which are its place in the
/// class; "hook" if it is none of Callback's.
std::string hook_name_of(const char* pointer, size_t bytes);

template <class Hook>
std::string hook_name(Hook hook) {
  return hook_name_of(reinterpret_cast<const char*>(&hook), sizeof(hook));
}

}  // namespace levin::detail
