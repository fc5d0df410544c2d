#include "levin/models/generate/texts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "levin/text/tokenizer.h"

namespace levin::models {
namespace {

/// Each byte is a token, and "is" is one.
text::Tokenizer bytes() {
  const std::vector<std::string> texts = {"is"};
  return text::Tokenizer::from_json(text::train_bpe(
      R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}})",
      texts,
      {.vocab_size = 258,
       .special_tokens = {{.content = "<end>", .special = true}},
       .initial_alphabet = text::byte_alphabet()}));
}

struct Streamed {
  std::vector<std::string> pieces;
  std::string whole;
  std::vector<size_t> stops;  // tokens at which a string was complete
};

Streamed stream(const text::Tokenizer& tokenizer, const std::string& prompt,
                const std::string& answer, const std::vector<std::string>& stop_strings) {
  Streamed streamed;
  WrittenText text(tokenizer, tokenizer.encode(prompt).ids, stop_strings,
                   [&](std::string_view piece) { streamed.pieces.emplace_back(piece); });
  const std::vector<int32_t> ids = tokenizer.encode(answer).ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (text.add(ids[i])) streamed.stops.push_back(i);
  }
  streamed.whole = text.finish();
  return streamed;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

TEST(WrittenText, PiecesAreTheWholeAndHaveWholeCharacters) {
  const auto tokenizer = bytes();
  const std::string answer = "this caf\u00e9 is \u4f60\u597d \U0001f600!";
  const Streamed streamed = stream(tokenizer, "\u00e9 prompt", answer, {});
  EXPECT_EQ(streamed.whole, answer);
  EXPECT_EQ(joined(streamed.pieces), answer);
  EXPECT_GT(streamed.pieces.size(), 15U);
  for (const std::string& piece : streamed.pieces) EXPECT_EQ(piece.find('\xef'), std::string::npos);
  EXPECT_EQ(std::ranges::count(streamed.pieces, "\u4f60"), 1);
}

TEST(WrittenText, ACharacterThatIsNeverWholeIsGivenAtTheEnd) {
  const auto tokenizer = bytes();
  auto ids = tokenizer.encode("a\u4f60").ids;
  ids.pop_back();
  std::string all;
  WrittenText text(tokenizer, {}, {}, [&](std::string_view piece) { all += piece; });
  for (const int32_t id : ids) EXPECT_FALSE(text.add(id));
  EXPECT_EQ(all, "a");
  EXPECT_EQ(text.finish(), all);
  EXPECT_EQ(all.substr(0, 4), "a\ufffd");
}

TEST(WrittenText, SpecialTokensAreNoText) {
  const Streamed streamed = stream(bytes(), "<end>a", "b<end>c", {});
  EXPECT_EQ(streamed.whole, "bc");
  EXPECT_EQ(joined(streamed.pieces), "bc");
}

TEST(WrittenText, StringsStopWithTheTokenThatCompletesThem) {
  const auto tokenizer = bytes();
  const auto stops = [&](const std::string& prompt, const std::string& answer,
                         const std::vector<std::string>& strings) {
    return stream(tokenizer, prompt, answer, strings).stops;
  };
  using Stops = std::vector<size_t>;
  EXPECT_EQ(stops("", "abcd", {"bc"}), Stops{2});
  EXPECT_EQ(stops("", "abcd", {"xy", "abcd"}), Stops{3});
  EXPECT_EQ(stops("",
                  "th"
                  "is"
                  "x",
                  {"hi"}),
            Stops{2});  // within the token "is"
  EXPECT_EQ(stops("", "aXbXc", {"X"}), (Stops{1, 3}));
  EXPECT_EQ(stops("the en", "d.", {"end"}), Stops{0});  // begun by the prompt
  EXPECT_EQ(stops("the end", ".", {"end"}), Stops{});   // all of it in the prompt
  EXPECT_EQ(stops("", "a\u4f60b", {"\u4f60"}), Stops{3});
  EXPECT_EQ(stops("", "a<end>", {"<end>"}), Stops{1});  // special tokens count
  EXPECT_EQ(stops("", "aaab", {"aab"}), Stops{3});
}

}  // namespace
}  // namespace levin::models
