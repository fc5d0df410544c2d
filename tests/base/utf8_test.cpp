#include "levin/base/text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/error_of.h"

namespace levin {
namespace {

struct Case {
  std::string bytes;
  size_t invalid;
  std::string lossy;
};

// What Rust's String::from_utf8_lossy gives: a sign for each ill-formed part that is as long as may be.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"", std::string::npos, ""},
      {"plain text, longer than eight bytes", std::string::npos,
       "plain text, longer than eight bytes"},
      {"\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80", std::string::npos,
       "\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80"},
      {"12345678\xff", 8, "12345678\xef\xbf\xbd"},
      {"a\x80z", 1, "a\xef\xbf\xbdz"},
      {"\xc0\xaf", 0, "\xef\xbf\xbd\xef\xbf\xbd"},                  // an overlong /
      {"\xe0\x80\x80", 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},  // an overlong zero
      {"\xed\xa0\x80", 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},  // a surrogate
      {"\xf4\x90\x80\x80", 0,
       "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},  // above U+10FFFF
      {"x\xe6\xbc", 1, "x\xef\xbf\xbd"},                     // cut off
      {"\xf0\x9f\x98z", 0, "\xef\xbf\xbdz"},
  };
  return all;
}

TEST(Utf8, TheFirstByteThatIsNoneIsFound) {
  for (const Case& one : cases())
    EXPECT_EQ(utf8::invalid_byte(one.bytes), one.invalid) << one.bytes;
}

TEST(Utf8, LossyPutsASignForEachPart) {
  for (const Case& one : cases()) EXPECT_EQ(utf8::lossy(one.bytes), one.lossy) << one.bytes;
}

TEST(Utf8, TheFirstCharacterIsReadOfAnyBytes) {
  for (const Case& one : cases()) {
    if (one.bytes.empty()) continue;
    const utf8::Character first = utf8::first_character(one.bytes);
    EXPECT_EQ(first.size == 0, one.invalid == 0) << one.bytes;
  }
  const utf8::Character face = utf8::first_character("\xf0\x9f\x98\x80!");
  EXPECT_EQ(face.size, 4u);
  EXPECT_EQ(face.code, U'\U0001f600');
}

TEST(Utf8, EveryCodePointGoesThereAndBack) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c == 0xd800) c = 0xe000;
    std::string text;
    utf8::append(text, c);
    size_t at = 0;
    ASSERT_EQ(utf8::next(text, at), c);
    ASSERT_EQ(at, text.size());
    ASSERT_EQ(utf8::size_of(c), text.size());
    ASSERT_EQ(utf8::length(text[0]), text.size());
    ASSERT_EQ(utf8::invalid_byte(text), std::string::npos);
  }
}

TEST(Utf8, WhatIsNoneNamesTheByte) {
  EXPECT_EQ(test::told_by([] { utf8::check("ab\xfe"); }),
            "text.utf8: byte 2 of the text (0xfe) is not UTF-8; convert the text first");
}

}  // namespace
}  // namespace levin
