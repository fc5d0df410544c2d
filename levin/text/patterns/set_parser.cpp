#include "levin/text/patterns/set_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"

namespace levin::text {

namespace {

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

void SetParser::fail(std::string_view what) const {
  LEVIN_FAIL("text.pattern",
             "the regular expression '{}' has {} at byte {}; levin supports Oniguruma's syntax "
             "except for this",
             printable(text_), what, at_);
}

char32_t SetParser::take_code_point() {
  if (done()) fail("an unexpected end");
  return utf8::next(text_, at_);
}

bool SetParser::take_class_escape(Ranges& set, bool in_brackets) {
  const char letter = text_[at_];
  switch (letter) {
    case 's':
    case 'S':
      set = named_set("space");
      break;
    case 'w':
    case 'W':
      set = in_brackets ? word_set_in_brackets() : named_set("word");
      break;
    case 'd':
    case 'D':
      set = named_set("nd");
      break;
    case 'h':
    case 'H':
      set = named_set("xdigit");
      break;
    case 'p':
    case 'P':
      ++at_;
      set = property(in_brackets);
      if (letter == 'P') set = complement(set);
      return true;
    default:
      return false;
  }
  ++at_;
  if (letter >= 'A' && letter <= 'Z') set = complement(set);
  return true;
}

/// Names are those of [:name:], but for two: Punct has no symbols here, and Word is another within brackets.
Ranges SetParser::property(bool in_brackets) {
  if (!take("{")) fail("a property without {");
  const bool negated = take("^");
  std::string name;
  while (!sees("}")) {
    if (done()) fail("an unterminated property");
    const char c = text_[at_++];
    if (c != ' ' && c != '_' && c != '-')
      name += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  ++at_;
  const Ranges set = name == "punct"                 ? named_set("p")
                     : name == "word" && in_brackets ? word_set_in_brackets()
                                                     : named_set(name);
  if (set.empty()) fail(fmt::format("the unknown property '{}'", printable(name)));
  return negated ? complement(set) : set;
}

char32_t SetParser::take_character_escape(bool in_brackets) {
  const char32_t c = take_code_point();
  switch (c) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      return '\a';
    case 'e':
      return 0x1b;
    case 'x':
      if (take("{")) return hex(8, true);
      // \x without digits is an x, and 0 within brackets.
      return in_brackets || (!done() && is_hex_digit(text_[at_])) ? hex(2, false) : c;
    case 'u':
      return hex(4, false);
    case '0':
      return octal(2);
    case 'c':
    case 'C':
    case 'M':
    case 'o':
      fail("an unknown escape");
    default:
      if (!in_brackets || c < '1' || c > '7') return c;
      --at_;
      return octal(3);
  }
}

char32_t SetParser::hex(int most, bool braced) {
  char32_t value = 0;
  int count = 0;
  for (; count < most && !done(); ++count) {
    const char c = text_[at_];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) break;
    value = std::min<char32_t>(value << 4 | static_cast<char32_t>(digit), unicode::kEnd);
    ++at_;
  }
  const bool is_cut = braced ? count == 0 || !take("}") : most == 4 && count < 4;
  if (is_cut || value >= unicode::kEnd) fail("an invalid code point");
  return value;
}
char32_t SetParser::octal(int most) {
  char32_t value = 0;
  for (int i = 0; i < most && !done() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
    value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
  }
  return value;
}

/// Parses a class from behind its [.
Ranges SetParser::char_class() {
  if (++depth_ > kMostDepth) fail("too deeply nested character classes");
  const bool negated = take("^");
  Ranges left;  // the left side of &&
  bool has_left = false;
  Ranges set;
  bool first = true;
  const auto combine = [&] {
    left = has_left ? intersected(left, set) : set;
    has_left = true;
    set.clear();
  };
  while (true) {
    if (done()) fail("an unterminated character class");
    if (sees("]") && !(first && text_.find(']', at_ + 1) != std::string_view::npos)) break;
    first = false;
    if (take("&&")) {
      combine();
      continue;
    }
    set = united(set, class_item());
  }
  ++at_;
  --depth_;
  combine();
  if (ignores_case_) left = with_other_case(left);
  return negated ? complement(left) : left;
}

Ranges SetParser::class_item() {
  if (sees("[:")) {
    const size_t end = text_.find(":]", at_);
    if (end != std::string_view::npos) {
      std::string_view name = text_.substr(at_ + 2, end - at_ - 2);
      const bool negated = name.starts_with('^');
      if (negated) name.remove_prefix(1);
      const Ranges set = name == "word" ? word_set_in_brackets() : named_set(name);
      if (!set.empty()) {
        at_ = end + 2;
        return negated ? complement(set) : set;
      }
    }
  }
  if (take("[")) return char_class();
  Ranges set;
  char32_t begin = 0;
  if (take("\\")) {
    if (done()) fail("an unterminated character class");
    if (take_class_escape(set, true)) return set;
    begin = text_[at_] == 'b' ? (++at_, U'\b') : take_character_escape(true);
  } else {
    begin = take_code_point();
  }
  // A - is a range only between two code points.
  if (!sees("-") || text_.substr(at_ + 1).starts_with(']')) return one(begin);
  const size_t before = at_++;
  char32_t end = 0;
  if (done() || sees("[")) {
    at_ = before;
    return one(begin);
  }
  if (take("\\")) {
    if (done()) fail("an unterminated character class");
    if (take_class_escape(set, true)) {
      at_ = before;
      return one(begin);
    }
    end = take_character_escape(true);
  } else {
    end = take_code_point();
  }
  if (end < begin) fail("a range in reverse order");
  return {{begin, end + 1}};
}

}  // namespace levin::text
