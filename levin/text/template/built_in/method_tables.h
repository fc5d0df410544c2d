#pragma once
// The tables of methods, by the type that has them. Not for users; find_method looks through them.
//
//   for (const BuiltIn& method : text_methods()) ...

#include <string>

#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/interpreter.h"

namespace levin::text::jinja {

std::span<const BuiltIn> text_methods();

/// The value, where no arguments were given to the method of this name; throws otherwise.
inline Value nothing_given(Interpreter& interpreter, Arguments& arguments, std::string_view name,
                           Value value) {
  const Parameters given(interpreter.run(), name, arguments, {});
  return value;
}

/// For the functions of Python that take arguments by place alone.
inline void no_names(Interpreter& interpreter, const Arguments& arguments, std::string_view name) {
  if (!arguments.named.empty())
    interpreter.run().fail(std::string(name) + " takes no arguments by name");
}

}  // namespace levin::text::jinja

/// A method by the body of its function.
#define LEVIN_METHOD(...) \
  [](Interpreter& in, const Value& self, Arguments& arguments) -> Value { __VA_ARGS__ }
