#pragma once
// Methods of texts, lists and dicts, by name. Not for users.
//
//   find_method(value, "split");

#include <string_view>

#include "levin/text/template/callable.h"

namespace levin::text::jinja {

/// Null where the value's type has none of the name, or where it would change the value.
Function::Body find_method(const Value& value, std::string_view name);

}  // namespace levin::text::jinja
