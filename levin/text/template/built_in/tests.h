#pragma once
// Tests: what may stand behind "is", by name. Not for users.
//
//   truth(find_test("defined")(interpreter, value, arguments));

#include <string_view>

#include "levin/text/template/callable.h"

namespace levin::text::jinja {

/// Null where there is none.
Function::Body find_test(std::string_view name);

}  // namespace levin::text::jinja
