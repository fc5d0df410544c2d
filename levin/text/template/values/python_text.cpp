#include "levin/text/template/values/python_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "levin/base/text/utf8.h"
#include "levin/text/template/values/case_table.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text::jinja {
namespace {

using unicode::Unicode;

bool append_case(const CaseTable& table, char32_t c, std::string& text) {
  const auto run = std::ranges::upper_bound(table.runs, c, {}, &CaseRun::first);
  if (run != table.runs.begin()) {
    const CaseRun& before = run[-1];
    if (c <= before.last && (c - before.first) % before.step == 0) {
      utf8::append(text, c + static_cast<char32_t>(before.distance));
      return true;
    }
  }
  const auto spelling = std::ranges::lower_bound(table.spellings, c, {}, &CaseSpelling::code);
  if (spelling == table.spellings.end() || spelling->code != c) return false;
  for (const char32_t one : spelling->text) {
    if (one != 0) utf8::append(text, one);
  }
  return true;
}

bool is_cased(char32_t c) {
  const auto category = Unicode::instance().category_bit(c);
  return (category & (unicode::bit(unicode::kLu) | unicode::bit(unicode::kLl) |
                      unicode::bit(unicode::kLt))) != 0;
}

/// Letters that stand between others without a case of their own.
bool is_passed_over(char32_t c) {
  const auto category = Unicode::instance().category_bit(c);
  constexpr uint32_t kPassed = unicode::bit(unicode::kMn) | unicode::bit(unicode::kMe) |
                               unicode::bit(unicode::kCf) | unicode::bit(unicode::kLm) |
                               unicode::bit(unicode::kSk);
  return (category & kPassed) != 0 || c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x2019;
}

/// A sigma that ends a word.
bool is_final(std::string_view text, size_t begin, size_t end) {
  for (size_t at = begin; at > 0;) {
    at = utf8::before(text, at);
    size_t after = at;
    const char32_t c = utf8::next(text, after);
    if (is_passed_over(c)) {
      if (at == 0) return false;
      continue;
    }
    if (!is_cased(c)) return false;
    break;
  }
  if (begin == 0) return false;
  while (end < text.size()) {
    const char32_t c = utf8::next(text, end);
    if (!is_passed_over(c)) return !is_cased(c);
  }
  return true;
}

void append_lower(std::string_view whole, size_t begin, size_t end, char32_t c, std::string& text) {
  if (c == 0x3a3) {  // capital sigma
    utf8::append(text, is_final(whole, begin, end) ? 0x3c2 : 0x3c3);
    return;
  }
  const std::u32string_view lower = Unicode::instance().lowercase(c);
  if (lower.empty()) {
    utf8::append(text, c);
  } else {
    for (const char32_t one : lower) utf8::append(text, one);
  }
}

void append_title(char32_t c, std::string& text) {
  if (append_case(kTitleTable, c, text) || append_case(kUpperTable, c, text)) return;
  utf8::append(text, c);
}

}  // namespace

bool is_space(char32_t c) {
  // Beyond Unicode's white space there are the separators of files, groups, records and units.
  return c < 0x80 ? c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f)
                  : Unicode::instance().is(c, unicode::kSpace);
}

std::string_view strip(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t after = begin;
    if (!is_space(utf8::next(text, after))) break;
    begin = after;
  }
  size_t end = text.size();
  while (right && end > begin) {
    const size_t last = utf8::before(text, end);
    size_t at = last;
    if (!is_space(utf8::next(text, at))) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right) {
  const auto is_one = [&](size_t at) {
    const std::string_view one = text.substr(at, utf8::length(text[at]));
    return characters.find(one) != std::string_view::npos;
  };
  size_t begin = 0;
  while (left && begin < text.size() && is_one(begin)) begin += utf8::length(text[begin]);
  size_t end = text.size();
  while (right && end > begin) {
    const size_t last = utf8::before(text, end);
    if (!is_one(last)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

std::string upper(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8::next(text, at);
    if (c < 0x80) {
      made += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    } else if (!append_case(kUpperTable, c, made)) {
      utf8::append(made, c);
    }
  }
  return made;
}

std::string lower(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = utf8::next(text, at);
    append_lower(text, begin, at, c, made);
  }
  return made;
}

std::string capitalized(std::string_view text) {
  std::string made;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = utf8::next(text, at);
    if (begin == 0) {
      append_title(c, made);
    } else {
      append_lower(text, begin, at, c, made);
    }
  }
  return made;
}

std::string titled(std::string_view text) {
  std::string made;
  bool within = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = utf8::next(text, at);
    if (within) {
      append_lower(text, begin, at, c, made);
    } else {
      append_title(c, made);
    }
    within = is_cased(c);
  }
  return made;
}

std::string escaped(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        made += "&amp;";
        break;
      case '<':
        made += "&lt;";
        break;
      case '>':
        made += "&gt;";
        break;
      case '\'':
        made += "&#39;";
        break;
      case '"':
        made += "&#34;";
        break;
      default:
        made += c;
    }
  }
  return made;
}

size_t place_of(std::string_view text, size_t number) {
  size_t at = 0;
  for (; number > 0 && at < text.size(); --number) at += utf8::length(text[at]);
  return at;
}

std::string_view text_of(Run& run, const Value& value, std::string_view function) {
  if (!value.is_text()) run.fail(fmt::format("{} wants a str, got {}", function, type_name(value)));
  return value.text();
}

}  // namespace levin::text::jinja
