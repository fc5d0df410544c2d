#pragma once
// ScannedText: a text as the scanners read it: letters, numbers, spaces and runs of them, and the alternatives that
// their expressions have in common. In a header, as the scanners' loops are made of it.
// Not for users.
//
//   const scan::ScannedText text("it's 7");
//   text.run(0, scan::kLetter);    // 2
//   text.contraction(2, false);    // 4

#include <array>
#include <string_view>

#include "levin/base/text/utf8.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text::scan {

// The kinds of a code point. Upper may begin a word of GPT-4o's, lower may end it; marks, modifiers
// and letters without case are both.
enum Sort : uint8_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,
  kUpper = 8,
  kLower = 16,
  kBreak = 32  // \r, \n
};

constexpr std::array<uint8_t, 128> make_kinds() {
  std::array<uint8_t, 128> kinds{};
  for (size_t c = 'a'; c <= 'z'; ++c) kinds[c] = kLetter | kLower;
  for (size_t c = 'A'; c <= 'Z'; ++c) kinds[c] = kLetter | kUpper;
  for (size_t c = '0'; c <= '9'; ++c) kinds[c] = kNumber;
  kinds[' '] = kinds['\t'] = kinds['\v'] = kinds['\f'] = kSpace;
  kinds['\r'] = kinds['\n'] = kSpace | kBreak;
  return kinds;
}

inline constexpr std::array<uint8_t, 128> kKinds = make_kinds();

inline uint8_t kind_beyond_ascii(uint32_t traits) {
  const uint32_t category = 1U << (traits & unicode::kCategoryMask);
  uint8_t kind = 0;
  if (category & unicode::kLetters) kind |= kLetter;
  if (category & unicode::kNumbers) kind |= kNumber;
  if (traits & unicode::kSpace) kind |= kSpace;
  constexpr uint32_t kBoth =
      unicode::bit(unicode::kLm) | unicode::bit(unicode::kLo) | unicode::kMarks;
  if (category & (kBoth | unicode::bit(unicode::kLu) | unicode::bit(unicode::kLt))) kind |= kUpper;
  if (category & (kBoth | unicode::bit(unicode::kLl))) kind |= kLower;
  return kind;
}

/// A text, and what is found in it from a place on.
class ScannedText {
 public:
  explicit ScannedText(std::string_view text)
      : text_(text), unicode_(unicode::Unicode::instance()) {}

  size_t size() const { return text_.size(); }
  bool ends(size_t at) const { return at >= text_.size(); }
  char byte(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  /// Returns the kinds of the code point at the place, and moves the place behind it.
  uint8_t kind(size_t& at) const {
    const auto first = static_cast<uint8_t>(text_[at]);
    if (first < 0x80) {
      ++at;
      return kKinds[first];
    }
    return kind_beyond_ascii(unicode_.traits(utf8::next(text_, at)));
  }
  uint8_t kind_at(size_t at) const { return kind(at); }
  size_t after(size_t at) const { return at + utf8::length(text_[at]); }
  size_t before(size_t at) const { return utf8::before(text_, at); }

  /// Returns the place behind at most `most` code points of these kinds.
  size_t run(size_t at, uint8_t kinds, size_t most = ~size_t{0}) const {
    while (most-- > 0 && at < text_.size()) {
      size_t next = at;
      if ((kind(next) & kinds) == 0) break;
      at = next;
    }
    return at;
  }
  /// The same for what is no letter, no number and no space.
  size_t run_of_others(size_t at) const {
    while (at < text_.size()) {
      size_t next = at;
      if (kind(next) & (kLetter | kNumber | kSpace)) break;
      at = next;
    }
    return at;
  }
  size_t run_of_bytes(size_t at, std::string_view bytes) const {
    while (at < text_.size() && bytes.find(text_[at]) != std::string_view::npos) ++at;
    return at;
  }

  /// Returns the end of 's, 't, 're, 've, 'm, 'll or 'd at the place; the place itself if there is
  /// none.
  size_t contraction(size_t at, bool any_case) const {
    if (byte(at) != '\'') return at;
    const auto letter = [&](size_t i) {
      const char c = byte(i);
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    // The long s is an s to (?i).
    if (any_case && text_.substr(at + 1).starts_with("\u017f")) return at + 3;
    switch (letter(at + 1)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return at + 2;
      case 'r':
      case 'v':
        return letter(at + 2) == 'e' ? at + 3 : at;
      case 'l':
        return letter(at + 2) == 'l' ? at + 3 : at;
      default:
        return at;
    }
  }

  /// \s+(?!\S)|\s+ at a space: all but the last where something follows.
  size_t spaces(size_t at) const {
    const size_t end = run(at, kSpace);
    if (ends(end)) return end;
    const size_t last = before(end);
    return last > at ? last : end;
  }
  /// Matches \s*[\r\n]+ at a space: returns the end of the last line break among spaces; the place
  /// itself if there is none.
  size_t line_breaks(size_t at) const {
    size_t end = at;
    for (size_t place = at; place < text_.size();) {
      const uint8_t kind_here = kind(place);
      if (!(kind_here & kSpace)) break;
      if (kind_here & kBreak) end = place;
    }
    return end;
  }

 private:
  std::string_view text_;
  const unicode::Unicode& unicode_;
};

}  // namespace levin::text::scan
