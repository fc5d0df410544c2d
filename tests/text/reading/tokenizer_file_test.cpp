// The fast way through a tokenizer.json finds what the parser finds, and leaves to it what it does not understand.
#include "levin/text/reading/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/error_of.h"
#include "tests/support/sanitized.h"

namespace levin::text {
namespace {

using test::told_by;
using ::testing::ElementsAre;
using ::testing::Pair;

/// A value as text, with its keys in the order in which they come.
std::string shown(const Component& value) {
  std::string text;
  if (value.is_object()) {
    for (const auto& [key, field] : value.fields()) text += key + ":" + shown(field) + ",";
    return "{" + text + "}";
  }
  if (value.is_list()) {
    for (const Component& item : value.items()) text += shown(item) + ",";
    return "[" + text + "]";
  }
  if (value.is_text()) return "'" + value.text() + "'";
  if (value.is_null()) return "null";
  const auto read_flag = [&] { text = value.flag() ? "true" : "false"; };
  return told_by(read_flag) == "no error" ? text : std::to_string(value.number());
}

std::string shown(const ModelData& model) {
  std::string text = model.has_vocabulary ? model.is_list ? "[" : "{" : "none";
  for (const auto& [token, id] : model.vocabulary) {
    text += std::string(token) + "=" + std::to_string(id) + ",";
  }
  for (const double score : model.scores) text += std::to_string(score) + ",";
  text += model.has_merges ? "merges" : "none";
  for (const auto& [left, right] : model.merges) {
    text += std::string(left) + "+" + std::string(right) + ",";
  }
  return text;
}

/// What is in a file, or what is wrong with it.
std::string found(std::string_view json, TokenizerFile::Way way) {
  std::string text;
  const std::string problem = told_by([&] {
    const TokenizerFile file(json, way);
    text = shown(file.root()) + " " + shown(file.model());
  });
  return problem == "no error" ? text : problem;
}

// With all that a text in quotes may hold: "\u0120t\n\ud83d\ude00" are U+0120, t, a new line, U+1F600.
constexpr std::string_view kPairs = R"({"version": "1.0", "a": {"vocab": {"x": 1}, "s": "]}\\\""},
  "added_tokens": [{"id": 0, "content": "\"", "special": true}, -1.5e3, null, false],
  "model": {"type": "BPE", "dropout": null, "vocab": {"t": 0, "\u0120": 1,
  "\u0120t\n\ud83d\ude00": 2, "é漢😀": 3, "\\\/\b\f\r\t\"": 4, "": 123456789012345678},
  "merges": [["\u0120", "t"], ["é", "漢"], "a b", "\u0120 t"], "z": {}}})";
constexpr std::string_view kScores =
    "{\"model\":{\"merges\":[ ],\"vocab\":[[\"<unk>\",0],[\"a\",-1.25],[ \"b\" , 2.5e-3 ],\n"
    "[\"c\",-0.0],[\"d\",-7],[\"e\",1E2]],\"unk_id\":0},\"decoder\":null} \n";

TEST(TokenizerFile, VocabularyAndMergesAreReadPastTheTree) {
  const TokenizerFile pairs(kPairs);
  EXPECT_THAT(pairs.model().merges, ElementsAre(Pair("\u0120", "t"), Pair("é", "漢"),
                                                Pair("a", "b"), Pair("\u0120", "t")));
  ASSERT_EQ(pairs.model().vocabulary.size(), 6U);
  EXPECT_EQ(pairs.model().vocabulary[2].token, "\u0120t\n\U0001F600");
  EXPECT_EQ(pairs.model().vocabulary[4].token, "\\/\b\f\r\t\"");
  EXPECT_EQ(pairs.model().vocabulary[5].id, 123456789012345678);
  EXPECT_TRUE(pairs.root().at("model").at("vocab").is_null());
  EXPECT_EQ(pairs.root().at("a").at("s").text(), "]}\\\"");
  const TokenizerFile scores(kScores);
  EXPECT_THAT(scores.model().scores, ElementsAre(0, -1.25, 2.5e-3, 0, -7, 100));
  EXPECT_EQ(scores.model().vocabulary[2].token, "b");
}

TEST(TokenizerFile, BothWaysFindTheSame) {
  for (const std::string_view json : {kPairs, kScores}) {
    EXPECT_EQ(found(json, TokenizerFile::Way::kPlain), found(json, TokenizerFile::Way::kParser));
  }
}

TEST(TokenizerFile, BothWaysFindTheSameInWhatIsUnusual) {
  const std::vector<std::string> models = {
      R"("vocab": {"a": 0}, "vocab": {"b": 1})",
      R"("vocab": {"a": 0}}, "model": {"vocab": {"b": 1})",
      R"("\u0076ocab": {"a": 0})",
      R"("vocab": {"a": 00})",
      R"("vocab": {"a": 1.0})",
      R"("vocab": {"a": 12345678901234567890})",
      R"("vocab": {"a": -1})",
      R"("vocab": {"a" 1})",
      R"("vocab": {"a": 1,})",
      R"("vocab": {,})",
      R"("vocab": [["a"]])",
      R"("vocab": [["a", .5]])",
      R"("vocab": [["a", 1e999]])",
      R"("vocab": [["a", 1e-999]])",
      R"("vocab": [["a", 01]])",
      R"("vocab": [["a", 1], "b"])",
      R"("vocab": "a")",
      R"("merges": ["a"])",
      R"("merges": ["a b c"])",
      R"("merges": [["a", "b", "c"]])",
      R"("merges": [["a", 1]])",
      R"("merges": {"a": "b"})",
      R"("vocab": {"\ud83d": 1})",
      R"("vocab": {"\ude00\ud83d": 1})",
      R"("vocab": {"\x": 1})",
      R"("vocab": {"\u12g4": 1})",
      R"("vocab": {"\u-123": 1})",
      "\"vocab\": {\"\xff\": 1}",
      "\"vocab\": {\"\xed\xa0\x80\": 1}",
      "\"vocab\": {\"a\tb\": 1}",
      R"("vocab": {"a: 1})",
      R"("vocab": {"a": 1}, "z": [})",
      R"("vocab": {"a": 1}, "z": [}])",
      R"("vocab": {"a": 1}, "z": nul)",
      R"("vocab": {"a": 1} "z": 1)",
      R"("vocab": {"a": 1}, "z": "\x")",
      R"("vocab": {"a": [1]})",
      "\"vocab\": {\"a\": 1}, \"z\": " + std::string(600, '[') + std::string(600, ']')};
  for (const std::string& model : models) {
    for (const std::string& json :
         {R"({"model": {)" + model + "}}", "{\"model\": {" + model,
          "[{\"model\": {" + model + "}}]", R"({"model": {)" + model + "}} x"}) {
      EXPECT_EQ(found(json, TokenizerFile::Way::kPlain), found(json, TokenizerFile::Way::kParser))
          << json;
    }
  }
}

TEST(TokenizerFile, BothWaysFindTheSameInWhatWasDamaged) {
  std::mt19937 random(7);  // NOLINT: the same in each run
  constexpr std::string_view kBytes = "\"\\{}[],:0 1-.eun\xc3\xa9\n";
  constexpr int kCases = levin::test::kSanitized ? 1000 : 20000;
  int whole = 0;
  for (int i = 0; i < kCases; ++i) {
    std::string json(i % 2 == 0 ? kPairs : kScores);
    for (size_t changes = random() % 3; changes > 0; --changes) {
      const size_t at = random() % json.size();
      const char byte = kBytes[random() % kBytes.size()];
      switch (random() % 4) {
        case 0:
          json[at] = byte;
          break;
        case 1:
          json.erase(at, 1 + random() % 3);
          break;
        case 2:
          json.insert(at, 1, byte);
          break;
        default:
          json.insert(at, json.substr(random() % json.size(), random() % 8));
      }
    }
    const std::string parsed = found(json, TokenizerFile::Way::kParser);
    ASSERT_EQ(found(json, TokenizerFile::Way::kPlain), parsed) << json;
    whole += !parsed.starts_with("text.file");
  }
  EXPECT_GT(whole, kCases / 10);
  EXPECT_LT(whole, kCases / 10 * 9);
}

TEST(TokenizerFile, AMergeThatBeginsWithVersionIsAHeading) {
  for (const auto way : {TokenizerFile::Way::kPlain, TokenizerFile::Way::kParser}) {
    const TokenizerFile file(
        std::string_view(
            R"({"model": {"merges": ["#version: 0.2", "a b", "#version x y", "#versions c"]}})"),
        way);
    ASSERT_EQ(file.model().merges.size(), 1U);
    EXPECT_EQ(file.model().merges[0].second, "b");
    const TokenizerFile pairs(std::string_view(R"({"model": {"merges": [["#version", "b"]]}})"),
                              way);
    EXPECT_EQ(pairs.model().merges.size(), 1U);
  }
}

}  // namespace
}  // namespace levin::text
