#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/log_sink.h"
#include "tests/text/small_tokenizer.h"

namespace levin::text {
namespace {

using test::SmallTokenizer;
using ::testing::ElementsAre;

Tokenizer with(AddedToken token, std::string normalizer = "null") {
  Tokenizer tokenizer = SmallTokenizer{.normalizer = std::move(normalizer)}.make();
  const std::vector<AddedToken> tokens = {std::move(token)};
  tokenizer.add_tokens(tokens);
  return tokenizer;
}

TEST(AddedTokens, AreFoundWithinWordsUnlessTheyAreSingle) {
  EXPECT_THAT(with({.content = "xy"}).encode("axya").ids, ElementsAre(1, 4, 1));
  const Tokenizer single = with({.content = "xy", .single_word = true});
  EXPECT_THAT(single.encode("axya").ids, ElementsAre(0));
  EXPECT_THAT(single.encode("a xy a").ids, ElementsAre(1, 4, 1));
  EXPECT_THAT(single.encode("\u00e9xy").ids, ElementsAre(0));
  EXPECT_THAT(single.encode("-xy-").ids, ElementsAre(0, 4, 0));
}

TEST(AddedTokens, TakeWhiteSpaceWithThem) {
  const auto offsets = [](AddedToken token) {
    return with(std::move(token)).encode("a  | b").offsets;
  };
  EXPECT_THAT(offsets({.content = "|"}), ElementsAre(Offset{0, 1}, Offset{3, 4}, Offset{5, 6}));
  EXPECT_THAT(offsets({.content = "|", .lstrip = true}),
              ElementsAre(Offset{0, 1}, Offset{1, 4}, Offset{5, 6}));
  EXPECT_THAT(offsets({.content = "|", .rstrip = true}),
              ElementsAre(Offset{0, 1}, Offset{3, 5}, Offset{5, 6}));
}

TEST(AddedTokens, OfWhiteSpaceAloneTakeEachOtherIn) {
  const auto offsets = [](AddedToken token, const char* text) {
    return with(std::move(token)).encode(text).offsets;
  };
  const AddedToken both{.content = "\n", .lstrip = true, .rstrip = true, .normalized = false};
  EXPECT_THAT(offsets(both, "\n\n"), ElementsAre(Offset{0, 2}));
  EXPECT_THAT(offsets(both, "a \n \n b"), ElementsAre(Offset{0, 1}, Offset{1, 6}, Offset{6, 7}));
  // Without lstrip the second one is found within what the first has taken.
  EXPECT_THAT(offsets({.content = "\n", .rstrip = true, .normalized = false}, "\n\n"),
              ElementsAre(Offset{0, 2}, Offset{1, 2}));
  Tokenizer tokenizer = SmallTokenizer{}.make();
  const std::vector<AddedToken> tokens = {{.content = "<s>", .rstrip = true, .normalized = false},
                                          {.content = " ", .lstrip = true, .normalized = false}};
  tokenizer.add_tokens(tokens);
  // Python's library panics on this text: its second token would end before it begins.
  EXPECT_THAT(tokenizer.encode("<s>  b").offsets, ElementsAre(Offset{0, 5}, Offset{5, 6}));
}

TEST(AddedTokens, ThatTheNormalizerLeavesNothingOfAreNamed) {
  std::string told;
  const log::Sink before =
      log::set_sink([&](log::Level, std::string_view text) { told += std::string(text); });
  const Tokenizer tokenizer = with({.content = "\n"}, R"({"type": "Strip"})");
  log::set_sink(before);
  EXPECT_THAT(told, ::testing::HasSubstr("is empty after normalization"));
  EXPECT_THAT(tokenizer.encode("a\nb").ids, ElementsAre(1, 2));
}

TEST(AddedTokens, AreLookedForInNormalizedTextWhereTheyAreToBe) {
  const std::string lowercase = R"({"type": "Lowercase"})";
  EXPECT_THAT(with({.content = "Yes"}, lowercase).encode("a yES").ids, ElementsAre(1, 4));
  EXPECT_THAT(with({.content = "Yes", .normalized = false}, lowercase).encode("a yES").ids,
              ElementsAre(1, 0));
  EXPECT_THAT(with({.content = "Yes", .normalized = false}, lowercase).encode("a Yes").ids,
              ElementsAre(1, 4));
}

TEST(AddedTokens, TheLongestOfThoseThatBeginFirstIsTaken) {
  Tokenizer tokenizer = SmallTokenizer{}.make();
  const std::vector<AddedToken> tokens = {
      {.content = "xy"}, {.content = "xyz"}, {.content = "yzz"}};
  tokenizer.add_tokens(tokens);
  EXPECT_THAT(tokenizer.encode("xyzz").ids, ElementsAre(5, 0));
  EXPECT_THAT(tokenizer.encode("yzzxy").ids, ElementsAre(6, 4));
}

TEST(AddedTokens, SpecialOnesMayBeTextAndAreNotDecoded) {
  const Tokenizer tokenizer = with({.content = "<s>", .normalized = false, .special = true});
  EXPECT_THAT(tokenizer.encode("a<s>").ids, ElementsAre(1, 4));
  EXPECT_THAT(tokenizer.encode("a<s>", {.split_special_tokens = true}).ids, ElementsAre(0));
  const std::vector<int32_t> ids = {1, 4, 2};
  EXPECT_EQ(tokenizer.decode(ids), "a b");
  EXPECT_EQ(tokenizer.decode(ids, {.skip_special_tokens = false}), "a <s> b");
}

}  // namespace
}  // namespace levin::text
