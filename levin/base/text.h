#pragma once
// How values of options read as text: on the command line, in TOML, in --help, in a checkpoint.
// A type of one's own takes part by a to_text/from_text pair beside it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin {

LEVIN_API std::string to_text(bool value);
LEVIN_API std::string to_text(int64_t value);
LEVIN_API std::string to_text(double value);
LEVIN_API std::string to_text(const std::string& value);

/// Each throws Error "base.text" with what came and what was wanted when text is no such value.
LEVIN_API void from_text(std::string_view text, bool& value);
LEVIN_API void from_text(std::string_view text, int64_t& value);
LEVIN_API void from_text(std::string_view text, double& value);
LEVIN_API void from_text(std::string_view text, std::string& value);

/// A list reads "a,b,c"; the comma after the last item is left out where that is not empty.
template <class T>
std::string to_text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += to_text(value) + ",";
  if (text.size() > 1 && text[text.size() - 2] != ',') text.pop_back();
  return text;
}

template <class T>
void from_text(std::string_view text, std::vector<T>& values) {
  values.clear();
  while (!text.empty()) {
    const size_t comma = text.find(',');
    from_text(text.substr(0, comma), values.emplace_back());
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
}

/// An unset optional reads "none".
template <class T>
std::string to_text(const std::optional<T>& value) {
  return value ? to_text(*value) : "none";
}

template <class T>
void from_text(std::string_view text, std::optional<T>& value) {
  if (text == "none") {
    value.reset();
  } else {
    from_text(text, value.emplace());
  }
}

/// Text of a file or of another process, for a message: control characters, marks that turn the
/// direction of writing and bytes that are no UTF-8 as "\n", "\x1b".
LEVIN_API std::string printable(std::string_view text);
/// The same for a text of several lines, which stay lines.
LEVIN_API std::string printable_lines(std::string_view text);

/// The candidate nearest to word by edit distance, if any is near enough to be a misspelling of it.
LEVIN_API std::optional<std::string> nearest(std::string_view word,
                                             const std::vector<std::string>& candidates);

}  // namespace levin
