#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "levin/text/tokenizer.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"

namespace levin::text {
namespace {

using nlohmann::json;
using test::error_id;
using ::testing::ElementsAre;

constexpr const char* kBlanks = R"({"pre_tokenizer": {"type": "WhitespaceSplit"}})";

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  const std::vector<std::string> texts = {"ab ab abc abc bc"};
  const json made = json::parse(train_bpe(kBlanks, texts, {.vocab_size = 5}));
  EXPECT_EQ(made["model"]["vocab"], json::parse(R"({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4})"));
  EXPECT_EQ(made["model"]["merges"], json::parse(R"([["a", "b"], ["ab", "c"]])"));
  EXPECT_THAT(Tokenizer::from_json(made.dump()).encode("abc ab").ids, ElementsAre(4, 3));
}

TEST(BpeTrainer, SpecialTokensComeFirstAndAreFound) {
  const std::vector<std::string> texts = {"ab"};
  const Tokenizer tokenizer = Tokenizer::from_json(
      train_bpe(kBlanks, texts, {.special_tokens = {{.content = "<s>", .special = true}}}));
  EXPECT_THAT(tokenizer.encode("<s>ab").ids, ElementsAre(0, 3));
}

TEST(BpeTrainer, BytesLeaveNothingUnknown) {
  const std::vector<std::string> texts = {"so it goes"};
  const Tokenizer tokenizer = Tokenizer::from_json(train_bpe(
      R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}})",
      texts, {.vocab_size = 300, .initial_alphabet = byte_alphabet()}));
  const std::string text = "\u6f22 it \x01 caf\u00e9";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).ids), text);
}

/// tests/oracle/text_training.py.
TEST(BpeTrainer, LearnsWhatPythonsLearns) {
  const json golden =
      json::parse(std::ifstream(test::source_dir() + "/tests/oracle/golden/text_training.json"));
  for (const auto& [name, fact] : golden.items()) {
    const json& given = fact["options"];
    BpeTrainerOptions options{.vocab_size = given["vocab_size"].get<int64_t>(),
                              .min_frequency = given.value("min_frequency", 0)};
    for (const json& token : given.value("special_tokens", json::array())) {
      options.special_tokens.push_back(
          {.content = token.get<std::string>(), .normalized = false, .special = true});
    }
    if (given.contains("limit_alphabet"))
      options.limit_alphabet = given["limit_alphabet"].get<int64_t>();
    if (given.contains("max_token_length"))
      options.max_token_length = given["max_token_length"].get<int64_t>();
    options.initial_alphabet = given.value("initial_alphabet", std::vector<std::string>());
    const json made = json::parse(train_bpe(
        fact["tokenizer"].dump(), fact["texts"].get<std::vector<std::string>>(), options));
    EXPECT_EQ(made["model"]["vocab"], fact["vocab"]) << name;
    EXPECT_EQ(made["model"]["merges"], fact["merges"]) << name;
  }
  EXPECT_GE(golden.size(), 5U);
}

TEST(BpeTrainer, WhatCannotBeIsAnError) {
  const std::vector<std::string> texts = {"a"};
  const auto id = [&](const std::string& tokenizer, const BpeTrainerOptions& options) {
    return error_id([&] { train_bpe(tokenizer, texts, options); });
  };
  EXPECT_EQ(id(kBlanks, {.vocab_size = 0}), "text.train");
  EXPECT_EQ(id(kBlanks, {.min_frequency = -1}), "text.train");
  EXPECT_EQ(id(R"({"model": {"type": "WordLevel"}})", {}), "text.train");
  EXPECT_EQ(id("{", {}), "text.file");
  EXPECT_EQ(id(R"({"pre_tokenizer": {"type": "Jieba"}})", {}), "text.component");
}

}  // namespace
}  // namespace levin::text
