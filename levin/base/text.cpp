#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"

namespace levin {
namespace {

template <class T>
void read_number(std::string_view text, T& value, std::string_view wanted) {
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  T parsed{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed);
  LEVIN_CHECK(error == std::errc() && end == digits.data() + digits.size(), "base.text",
              "got '{}', wanted {}", text, wanted);
  value = parsed;
}

/// Counts two neighbours that changed places as one edit (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> last(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substitution = row[j] + (a[i] == b[j] ? 0 : 1);
      next[j + 1] = std::min({substitution, next[j] + 1, row[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        next[j + 1] = std::min(next[j + 1], last[j - 1] + 1);
      }
    }
    last.swap(row);
    row.swap(next);
  }
  return row.back();
}

/// Controls of ASCII and Latin 1, ends of lines and paragraphs, and turns of direction.
bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string result;
  while (!text.empty()) {
    const auto [size, code] = utf8::first_character(text);
    const size_t taken = std::max<size_t>(size, 1);
    if (size > 0 && (!is_control(code) || kept.find(text[0]) != std::string_view::npos)) {
      result += text.substr(0, size);
    } else if (text[0] == '\n' || text[0] == '\t' || text[0] == '\r') {
      result += text[0] == '\n' ? "\\n" : text[0] == '\t' ? "\\t" : "\\r";
    } else {
      for (const char c : text.substr(0, taken)) {
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    text.remove_prefix(taken);
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, ""); }
std::string printable_lines(std::string_view text) { return escaped(text, "\n\t"); }

std::string to_text(bool value) { return value ? "true" : "false"; }
std::string to_text(int64_t value) { return std::to_string(value); }
std::string to_text(double value) {
  // "-0" would be a whole number to TOML, which has no sign then.
  return value == 0 && std::signbit(value) ? "-0.0" : fmt::format("{}", value);
}
std::string to_text(const std::string& value) { return value; }

void from_text(std::string_view text, bool& value) {
  const bool yes = text == "true" || text == "1" || text == "yes" || text == "on";
  const bool no = text == "false" || text == "0" || text == "no" || text == "off";
  LEVIN_CHECK(yes || no, "base.text", "got '{}', wanted true or false", text);
  value = yes;
}

void from_text(std::string_view text, int64_t& value) { read_number(text, value, "an integer"); }
void from_text(std::string_view text, double& value) { read_number(text, value, "a number"); }
void from_text(std::string_view text, std::string& value) { value = text; }

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace levin
