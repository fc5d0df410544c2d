#pragma once
// Filters: jinja2's, by name. Not for users.
//
//   find_filter("trim")(interpreter, value, arguments);

#include <string_view>

#include "levin/text/template/callable.h"

namespace levin::text::jinja {

/// Null where there is none.
Function::Body find_filter(std::string_view name);

}  // namespace levin::text::jinja
