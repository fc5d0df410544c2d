#pragma once
// Texts as Python has them: white space, cases, and how it writes its values.
// Not for users.
//
//   written(run, value);      // str(value): "['a', 1.5, True]"

#include <string>
#include <string_view>

#include "levin/text/template/values/run.h"

namespace levin::text::jinja {

/// str.isspace of one character.
bool is_space(char32_t c);
/// Returns the text without white space at its ends.
std::string_view strip(std::string_view text, bool left = true, bool right = true);
/// Returns the text without any of these characters at its ends.
std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// The first letter of the text, or of each word, in title case, the others in lower case.
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);

std::string written(double number);
/// str(value) and repr(value).
std::string written(Run& run, const Value& value);
std::string represented(Run& run, const Value& value);
std::string quoted(std::string_view text);
/// Escapes the text for HTML.
std::string escaped(std::string_view text);

/// The place of a code point by its number; the text's size where it has fewer.
size_t place_of(std::string_view text, size_t number);

/// The text of a value that is one, which `function` wants; throws otherwise.
std::string_view text_of(Run& run, const Value& value, std::string_view function);

}  // namespace levin::text::jinja
