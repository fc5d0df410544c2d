#pragma once
// A template finds these by name: jinja2's filters and tests, methods of texts, lists and dicts, and the globals
// range, namespace, dict, joiner, raise_exception and strftime_now. Not for users.
//
//   find_filter("trim")(interpreter, value, arguments);
//   truth(find_test("defined")(interpreter, value, arguments));

#include <span>
#include <string_view>

#include "levin/text/template/callable.h"

namespace levin::text::jinja {

/// A row of the tables of filters, tests and methods.
struct BuiltIn {
  std::string_view name;
  Function::Body body;
};

/// Null where the table has none of the name.
Function::Body find_in(std::span<const BuiltIn> table, std::string_view name);

/// Return nullptr if there is none.
Function::Body find_filter(std::string_view name);
Function::Body find_test(std::string_view name);
/// Null where the value's type has none of the name, or where it would change the value.
Function::Body find_method(const Value& value, std::string_view name);
/// Returns undefined if there is none.
Value find_global(Run& run, std::string_view name);
/// Sets an attribute of transformers' namespace, which takes no name that begins with "_".
void put_attribute(Run& run, Namespace& space, std::string_view name, const Value& value);

}  // namespace levin::text::jinja
