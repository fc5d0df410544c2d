#include "levin/text/unicode/unicode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/text/utf8.h"
#include "levin/text/unicode/base64.h"
#include "levin/text/unicode/graphemes.h"
#include "levin/text/unicode/normal_forms.h"
#include "tests/support/sanitized.h"

namespace levin::text::unicode {
namespace {

using ::testing::ElementsAre;

std::string in_form(std::string_view text, NormalForm form) {
  std::vector<Change> changes;
  normalize(text, form, changes);
  std::string made;
  for (const Change& change : changes) utf8::append(made, change.c);
  return made;
}

TEST(NormalForms, DecomposeReorderAndCompose) {
  EXPECT_EQ(in_form("\u00e9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(in_form("e\u0301", NormalForm::kNfc), "\u00e9");
  EXPECT_EQ(in_form("q\u0307\u0323", NormalForm::kNfd), "q\u0323\u0307");
  EXPECT_EQ(in_form("\ufb01 \u00bd", NormalForm::kNfkd), "fi 1\u20442");
  EXPECT_EQ(in_form("\uac01", NormalForm::kNfd), "\u1100\u1161\u11a8");
  EXPECT_EQ(in_form("\u1100\u1161\u11a8", NormalForm::kNfc), "\uac01");
  EXPECT_EQ(in_form("\u0958", NormalForm::kNfc), "\u0915\u093c");  // composes to nothing
  // Younger than the tables of Python's library: it stays.
  EXPECT_EQ(in_form("\u32ff", NormalForm::kNfkc), "\u32ff");
}

TEST(NormalForms, ChangesSayWhatTheyReplace) {
  std::vector<Change> changes;
  normalize("e\u0301x\u00e9", NormalForm::kNfc, changes);
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[0].replaces, -1);
  EXPECT_EQ(changes[1].replaces, 0);
  EXPECT_EQ(changes[2].replaces, 0);
  changes.clear();
  normalize("\u00e9", NormalForm::kNfd, changes);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[1].replaces, 1);
}

TEST(NormalForms, WhatCannotChangeIsSeen) {
  EXPECT_FALSE(may_change("plain \u00e9 \u6f22", NormalForm::kNfc));
  EXPECT_FALSE(may_change("\u304c \uac01", NormalForm::kNfc));
  EXPECT_TRUE(may_change("e\u0301", NormalForm::kNfc));
  EXPECT_TRUE(may_change("\u304c\u3099", NormalForm::kNfc));
  EXPECT_TRUE(may_change("\u0958", NormalForm::kNfc));
  EXPECT_TRUE(may_change("\u00e9", NormalForm::kNfd));
  EXPECT_TRUE(may_change("\u00a0", NormalForm::kNfkc));
}

// Alone, between letters, and behind another one that does not change.
TEST(NormalForms, WhatIsSeenNotToChangeDoesNot) {
  constexpr int kStep = levin::test::kSanitized ? 61 : 1;  // of code points
  std::vector<Change> changes;
  const auto stays = [&](std::string_view text, NormalForm form) {
    changes.clear();
    normalize(text, form, changes);
    std::string made;
    for (const Change& change : changes) {
      if (change.replaces != 0) return false;
      utf8::append(made, change.c);
    }
    return made == text;
  };
  for (const NormalForm form :
       {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
    std::string last;
    int seen = 0;
    for (char32_t c = 0xa0; c < kEnd; c += kStep) {
      if (c >= 0xd800 && c < 0xe000) continue;
      std::string one;
      utf8::append(one, c);
      if (may_change(one, form)) continue;
      seen += kStep;
      ASSERT_TRUE(stays("a" + one + "b" + one + last + one, form)) << static_cast<uint32_t>(c);
      last = one;
    }
    EXPECT_GT(seen, 100000);
  }
}

TEST(Graphemes, EndWhereAReaderSeesOne) {
  const auto graphemes = [](std::string_view text) {
    std::vector<std::string> parts;
    for (size_t at = 0; at < text.size();) {
      const size_t end = grapheme_end(text, at);
      parts.emplace_back(text.substr(at, end - at));
      at = end;
    }
    return parts;
  };
  EXPECT_THAT(graphemes("e\u0301\r\na"), ElementsAre("e\u0301", "\r\n", "a"));
  EXPECT_THAT(graphemes("\U0001f1e9\U0001f1ea\U0001f1eb"),
              ElementsAre("\U0001f1e9\U0001f1ea", "\U0001f1eb"));
  EXPECT_THAT(graphemes("\U0001f468\u200d\U0001f469x"),
              ElementsAre("\U0001f468\u200d\U0001f469", "x"));
  EXPECT_THAT(graphemes("\u1100\u1161\u11a8\u1100"), ElementsAre("\u1100\u1161\u11a8", "\u1100"));
  EXPECT_THAT(graphemes("\u0915\u094d\u0937\u0915"), ElementsAre("\u0915\u094d\u0937", "\u0915"));
}

TEST(Base64, ReadsWithPaddingAndRefusesWhatIsNone) {
  EXPECT_EQ(from_base64(""), "");
  EXPECT_EQ(from_base64("YQ=="), "a");
  EXPECT_EQ(from_base64("YWI="), "ab");
  EXPECT_EQ(from_base64("+/8A"), std::string("\xfb\xff\0", 3));
  EXPECT_EQ(from_base64("YQ="), std::nullopt);
  EXPECT_EQ(from_base64("Y*=="), std::nullopt);
}

}  // namespace
}  // namespace levin::text::unicode
