#include "levin/text/patterns/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "levin/base/text/utf8.h"
#include "tests/support/error_of.h"

namespace levin::text {
namespace {

using test::told_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> found(const Pattern& pattern, std::string_view text) {
  std::vector<Bytes> matches;
  pattern.find(text, matches);
  std::vector<std::string> parts;
  for (const Bytes match : matches)
    parts.emplace_back(text.substr(match.begin, match.end - match.begin));
  return parts;
}

std::vector<std::string> found(std::string_view expression, std::string_view text) {
  return found(*compile_expression(expression), text);
}

TEST(Pattern, MatchesAsOnigurumaDoes) {
  EXPECT_THAT(found("a|ab", "abab"), ElementsAre("a", "a"));
  EXPECT_THAT(found("(?:a|ab)(?=$|a)", "abab"), ElementsAre("ab", "ab"));
  EXPECT_THAT(found("b*", "abba"), ElementsAre("", "bb", ""));
  EXPECT_THAT(found("a++a|b", "aaab"), ElementsAre("b"));
  EXPECT_THAT(found("a.*?c", "abcabc"), ElementsAre("abc", "abc"));
  EXPECT_THAT(found("(?<=a|xx)b", "ab xxb cb"), ElementsAre("b", "b"));
  EXPECT_THAT(found("(?<!a)b", "ab bb"), ElementsAre("b", "b"));
  EXPECT_THAT(found("^.|.$", "ab\ncd"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(found("(?m)b.", "ab\nc"), ElementsAre("b\n"));
  EXPECT_THAT(found("(?i)\u00c9k", "\u00e9\u212a"), ElementsAre("\u00e9\u212a"));
  EXPECT_THAT(found("[a-z&&[^aeiou]]+", "hello"), ElementsAre("h", "ll"));
  EXPECT_THAT(found(R"(\p{Han}+)", "\u6f22\u3001\u5b57"), ElementsAre("\u6f22", "\u5b57"));
  EXPECT_THAT(found("(?:ab){2}", "ababab"), ElementsAre("abab"));
  EXPECT_THAT(found("(?x) a b # and no more\n", "a ab"), ElementsAre("ab"));
}

// Found against tokenizers' Regex over all code points: \w alone asks another table than brackets do, and \p{Punct}
// no symbols, which [[:punct:]] has.
TEST(Pattern, ClassesInBracketsAreOnigurumas) {
  const std::string latin = "a\u00b2\u00b3\u00b9\u00bc\u00bd\u00be\u00aa_5";
  const std::string kept = "a\u00aa_5";
  const std::string left_out = "\u00b2\u00b3\u00b9\u00bc\u00bd\u00be";
  const auto all = [&](std::string_view expression) {
    std::string text;
    for (const std::string& part : found(expression, latin)) text += part;
    return text;
  };
  for (const char* whole : {R"(\w)", R"(\p{Word})", R"((?i)\w)"})
    EXPECT_EQ(all(whole), latin) << whole;
  for (const char* word : {R"([\w])", R"([\w_])", R"([[\w]])", R"([[:word:]])", R"([\p{Word}])",
                           R"((?i)[\w])", R"([^\W])", R"([^[:^word:]])"}) {
    EXPECT_EQ(all(word), kept) << word;
  }
  for (const char* other : {R"([^\w])", R"([\W])", R"([[:^word:]])", R"([^[:word:]])"})
    EXPECT_EQ(all(other), left_out) << other;
  EXPECT_THAT(found(R"(\p{Punct})", "!$+-\u00a6\u00ab"), ElementsAre("!", "-", "\u00ab"));
  EXPECT_THAT(found("[[:punct:]]", "!$+-\u00ab"), ElementsAre("!", "$", "+", "-", "\u00ab"));
  // (?i) reaches into brackets, and not into a class that stands alone.
  EXPECT_THAT(found(R"((?i)\p{Lu})", "aBc"), ElementsAre("B"));
  EXPECT_THAT(found(R"((?i)\P{Lu})", "aBc"), ElementsAre("a", "c"));
  EXPECT_THAT(found(R"((?i)[\p{Lu}])", "aBc"), ElementsAre("a", "B", "c"));
  EXPECT_THAT(found("(?i)\u0264", "\ua7cb"), ElementsAre("\ua7cb"));  // a pair of Unicode 16
}

TEST(Pattern, EscapesAreOnigurumas) {
  EXPECT_THAT(found(R"(\O)", "a\nN"), ElementsAre("a", "\n", "N"));
  EXPECT_THAT(found(R"(\N)", "a\nN"), ElementsAre("a", "N"));
  EXPECT_THAT(found(R"([\101-\103])", "ABCD1"), ElementsAre("A", "B", "C"));
  EXPECT_THAT(found(R"(\0101|\x4g|\xg)",
                    "\x08"
                    "1 \x04g xg"),
              ElementsAre("\x08"
                          "1",
                          "\x04g", "xg"));
}

TEST(Pattern, ScannersGiveWhatTheirExpressionsGive) {
  const std::string contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  const std::string lead = R"([^\r\n\p{L}\p{N}]?)";
  const std::string large = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string small = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string spaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string others = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)";
  const std::string others_4o = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)";
  const std::vector<std::string> expressions = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      contractions + "|" + lead + R"(\p{L}+|\p{N}{1,3})" + others + spaces,
      contractions + "|" + lead + R"(\p{L}+|\p{N})" + others + spaces,
      lead + large + "*" + small + "+" + contractions + "?|" + lead + large + "+" + small + "*" +
          contractions + R"(?|\p{N}{1,3})" + others_4o + spaces,
      lead + large + "*" + small + "+|" + lead + large + "+" + small + R"(*|\p{N})" + others_4o +
          spaces,
      R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)"};
  const std::vector<std::string> alphabet = {"a",          "b",          "S",
                                             "T",          "l",          "L",
                                             "r",          "e",          "V",
                                             "'",          "'",          " ",
                                             " ",          "\n",         "\r",
                                             "\t",         "/",          "-",
                                             "1",          "2",          "\u00e9",
                                             "\u01c5",     "\u02b0",     "\u0301",
                                             "\u05d0",     "\u6f22",     "\u0663",
                                             "\u3000",     "\u017f",     "\u212a",
                                             "\U0001f600", "\U0001d7ce", "<|endoftext|>"};
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same texts each time
  for (const std::string& expression : expressions) {
    const PatternPtr scanner = known_scanner(expression);
    ASSERT_NE(scanner, nullptr) << expression;
    const PatternPtr general = compile_expression(expression);
    for (int i = 0; i < 4000; ++i) {
      std::string text;
      for (size_t length = random() % 14; length > 0; --length)
        text += alphabet[random() % alphabet.size()];
      ASSERT_EQ(found(*scanner, text), found(*general, text)) << expression << "\non " << text;
    }
  }
  EXPECT_EQ(known_scanner(R"(\p{L}+)"), nullptr);
}

TEST(Pattern, WhatIsMalformedOrNotKnownIsAnErrorWithItsPlace) {
  const auto said = [](std::string_view expression) {
    return told_by([&] { compile_expression(expression); });
  };
  EXPECT_THAT(
      said("(a"),
      StartsWith("text.pattern: the regular expression '(a' has an unterminated group at byte 2"));
  for (const char* malformed :
       {"a)", "*a", "[a", "a{2,1}", "\\", "(?<n", "\\p{L", "\\x{110000}", "[b-a]"}) {
    EXPECT_THAT(said(malformed), StartsWith("text.pattern: ")) << malformed;
  }
  for (const char* unknown :
       {"(a)\\1", "\\Xa", "\\Ga", "(?~a)", "(?(1)a)", "\\p{Klingon}", "(?<=a*)b", "\\ca", "\\C-a",
        "\\M-a", "\\o{101}", "[\\ca]", "\\u12"}) {
    EXPECT_THAT(said(unknown), StartsWith("text.pattern: ")) << unknown;
  }
  EXPECT_THAT(said(std::string(200, '(') + std::string(200, ')')),
              HasSubstr("too deeply nested groups"));
  EXPECT_THAT(said("(?:(?:(?:ab){100}){100}){100}"), HasSubstr("too long"));
}

TEST(Pattern, OneThatTakesForeverIsStopped) {
  const PatternPtr pattern = compile_expression("(?:(?:a|b)*)*c");
  std::vector<Bytes> matches;
  EXPECT_THAT(told_by([&] { pattern->find(std::string(100, 'a'), matches); }),
              HasSubstr("takes too many steps on a text of 100 bytes"));
}

}  // namespace
}  // namespace levin::text
