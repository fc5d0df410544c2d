#pragma once
// Globals: range, namespace, dict, joiner, raise_exception and strftime_now. Not for users.
//
//   find_global(run, "range");

#include <string_view>

#include "levin/text/template/values/run.h"

namespace levin::text::jinja {

/// Undefined where there is none.
Value find_global(Run& run, std::string_view name);
/// As transformers' namespace: no name begins with "_".
void put_attribute(Run& run, Namespace& space, std::string_view name, const Value& value);

}  // namespace levin::text::jinja
