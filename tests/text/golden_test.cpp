// Tokenizers of all kinds of parts against what Python's tokenizers makes of the same texts.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "levin/text/tokenizer.h"
#include "tests/support/places.h"

namespace levin::text {
namespace {

using nlohmann::json;

json golden() {
  return json::parse(std::ifstream(test::source_dir() + "/tests/oracle/golden/text_tokens.json"));
}

/// A model that spells the bytes of its input.
json bytes_model() {
  json vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = byte;
  return {
      {"type", "BPE"}, {"byte_fallback", true}, {"vocab", vocabulary}, {"merges", json::array()}};
}

Tokenizer make(json tokenizer) {
  if (tokenizer["model"] == "bytes") tokenizer["model"] = bytes_model();
  return Tokenizer::from_json(tokenizer.dump());
}

std::vector<int32_t> list(const json& fact, const char* key, int32_t otherwise) {
  if (fact.contains(key)) return fact[key].get<std::vector<int32_t>>();
  return std::vector<int32_t>(fact["ids"].size(), otherwise);
}

void expect_equal(const Encoding& encoding, const json& fact, const std::string& what) {
  EXPECT_EQ(encoding.ids, fact["ids"].get<std::vector<int32_t>>()) << what;
  EXPECT_EQ(encoding.type_ids, list(fact, "types", 0)) << what;
  EXPECT_EQ(encoding.attention_mask, list(fact, "mask", 1)) << what;
  EXPECT_EQ(encoding.special_tokens_mask, list(fact, "special", 0)) << what;
  EXPECT_EQ(encoding.word_ids, fact["word_ids"].get<std::vector<int32_t>>()) << what;
  std::vector<int32_t> offsets;
  for (const Offset& offset : encoding.offsets) {
    offsets.push_back(offset.begin);
    offsets.push_back(offset.end);
  }
  EXPECT_EQ(offsets, fact["offsets"].get<std::vector<int32_t>>()) << what;
  const json overflowing = fact.value("overflowing", json::array());
  ASSERT_EQ(encoding.overflowing.size(), overflowing.size()) << what;
  for (size_t i = 0; i < overflowing.size(); ++i) {
    expect_equal(encoding.overflowing[i], overflowing[i], what + ", what overflows");
  }
}

Encoding encode(const Tokenizer& tokenizer, const json& one, OffsetUnit unit) {
  const EncodeOptions options{.offsets = unit};
  if (one.contains("words")) {
    const auto words = one["words"].get<std::vector<std::string>>();
    return tokenizer.encode(EncodeInput{std::span(words), std::nullopt}, options);
  }
  if (one.contains("pair")) {
    const auto pair = one["pair"].get<std::vector<std::string>>();
    return tokenizer.encode(EncodeInput{pair[0], pair[1]}, options);
  }
  return tokenizer.encode(one["text"][0].get<std::string>(), options);
}

TEST(Golden, EveryKindOfPartGivesWhatPythonsGives) {
  size_t cases = 0;
  const json all = golden();
  for (const auto& [name, fact] : all.items()) {
    const Tokenizer tokenizer = make(fact["tokenizer"]);
    for (const json& one : fact["cases"]) {
      const std::string what = name + " on " + one.dump().substr(0, 200);
      const Encoding encoding = encode(tokenizer, one, OffsetUnit::kCodePoints);
      expect_equal(encoding, one, what);
      EXPECT_EQ(encode(tokenizer, one, OffsetUnit::kNone).ids, encoding.ids) << what;
      EXPECT_EQ(tokenizer.decode(encoding.ids), one["decoded"].get<std::string>()) << what;
      ++cases;
    }
  }
  EXPECT_GT(cases, 400U);
}

}  // namespace
}  // namespace levin::text
