#include "levin/text/template/parsing/literals.h"

#include <cctype>

#include "levin/base/text/utf8.h"
#include "levin/text/template/parsing/lexer.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text::jinja {
namespace {

/// Returns the place behind digits and the "_" between them.
size_t behind_digits(std::string_view text, size_t at) {
  while (at < text.size() && (is_digit(text[at]) || (text[at] == '_' && at + 1 < text.size() &&
                                                     is_digit(text[at + 1])))) {
    ++at;
  }
  return at;
}

void append_code(std::string& text, int line, std::string_view digits, size_t size, uint32_t base) {
  uint64_t code = 0;
  bool good = digits.size() == size;
  for (const char digit : digits) {
    const auto place =
        std::string_view("0123456789abcdef")
            .find(static_cast<char>(digit >= 'A' && digit <= 'F' ? digit - 'A' + 'a' : digit));
    good = good && place < base;
    code = code * base + place;
  }
  if (!good || code >= unicode::kEnd || (code >= 0xd800 && code < 0xe000)) {
    fail_at(line, "a string has an escape that is not a character");
  }
  utf8::append(text, static_cast<char32_t>(code));
}

}  // namespace

Number number_at(std::string_view text, size_t begin) {
  if (text[begin] == '0' && begin + 1 < text.size() &&
      std::string_view("xXoObB").find(text[begin + 1]) != std::string_view::npos) {
    size_t end = begin + 2;
    while (end < text.size() &&
           (std::isxdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) {
      ++end;
    }
    return {end, false};
  }
  size_t end = behind_digits(text, begin);
  bool real = false;
  const bool behind_dot = begin > 0 && text[begin - 1] == '.';
  if (!behind_dot && end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
    end = behind_digits(text, end + 1);
    real = true;
  }
  if (!behind_dot && end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && is_digit(text[exponent])) {
      end = behind_digits(text, exponent);
      real = true;
    }
  }
  if (!real && text[begin] == '0') {  // "007" is three numbers to jinja2, which then refuses them
    end = begin;
    while (end < text.size() && (text[end] == '0' || text[end] == '_')) ++end;
  }
  return {end, real};
}

std::string unescaped(std::string_view written, int line) {
  std::string text;
  for (size_t at = 0; at < written.size();) {
    if (written[at] != '\\') {
      text += written[at++];
      continue;
    }
    const char c = written[at + 1];
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeant = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t place = kLetters.find(c); place != std::string_view::npos) {
      text += kMeant[place];
      at += 2;
    } else if (c == '\n') {
      at += 2;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_code(text, line, written.substr(at + 2, size), size, 16);
      at += 2 + size;
    } else if (c >= '0' && c <= '7') {
      size_t size = 1;
      while (size < 3 && at + 1 + size < written.size() && written[at + 1 + size] >= '0' &&
             written[at + 1 + size] <= '7') {
        ++size;
      }
      append_code(text, line, written.substr(at + 1, size), size, 8);
      at += 1 + size;
    } else if (c == 'N') {
      fail_at(line, "levin knows no '\\N{...}' in texts; write the character itself");
    } else {
      text += '\\';
      ++at;
    }
  }
  return text;
}

}  // namespace levin::text::jinja
