#pragma once
// Literals: numbers and texts as a template writes them.
// Not for users.
//
//   number_at("1_0.5)", 0).end;      // 5
//   unescaped("a\\n", line);         // "a" and a line's end

#include <string>
#include <string_view>

namespace levin::text::jinja {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct Number {
  size_t end;
  bool real;
};
/// Returns the number that begins there with a digit.
Number number_at(std::string_view text, size_t begin);

/// Returns the text between quotes with its escapes resolved. Throws Error "text.template" with the
/// line.
std::string unescaped(std::string_view written, int line);

}  // namespace levin::text::jinja
