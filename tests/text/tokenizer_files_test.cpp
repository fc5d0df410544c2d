// What a tokenizer is read from: tokenizer.json, and the other files of a folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "levin/text/tokenizer.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/text/small_tokenizer.h"

namespace levin::text {
namespace {

using test::SmallTokenizer;
using test::told_by;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(Tokenizer, AFilesTruncationAndPaddingAreReadAndAFoldersAreNot) {
  const SmallTokenizer small{
      .truncation =
          R"({"direction": "Left", "max_length": 2, "strategy": "OnlyFirst", "stride": 0})",
      .padding = R"({"strategy": {"Fixed": 3}, "direction": "Left", "pad_to_multiple_of": null,
                     "pad_id": 9, "pad_type_id": 1, "pad_token": "P"})"};
  EXPECT_THAT(small.make().encode("a b c").ids, ElementsAre(9, 2, 3));
  const test::Scratch scratch;
  std::ofstream(scratch / "tokenizer.json") << small.json();
  EXPECT_THAT(Tokenizer::from_file(scratch / "tokenizer.json").encode("a b c").ids,
              ElementsAre(9, 2, 3));
  EXPECT_THAT(Tokenizer::from_pretrained(scratch.path()).encode("a b c").ids, ElementsAre(1, 2, 3));
}

TEST(Tokenizer, AFoldersOtherFilesNameSpecialTokensAndMore) {
  const test::Scratch scratch;
  std::ofstream(scratch / "tokenizer.json") << SmallTokenizer{}.json();
  std::ofstream(scratch / "tokenizer_config.json")
      << R"({"model_max_length": 77, "padding_side": "left",
    "clean_up_tokenization_spaces": true, "pad_token": "[PAD]", "bos_token": {"content": "a"},
    "chat_template": "{{ messages }}", "additional_special_tokens": ["<x>"],
    "added_tokens_decoder": {"5": {"content": "<y>", "special": false, "normalized": false}}})";
  std::ofstream(scratch / "special_tokens_map.json")
      << R"({"eos_token": "c", "pad_token": "other"})";
  Tokenizer tokenizer = Tokenizer::from_pretrained(scratch.path());
  EXPECT_EQ(tokenizer.model_max_length(), 77);
  EXPECT_EQ(tokenizer.special_token("bos_token"), "a");
  EXPECT_EQ(tokenizer.special_token_id("bos_token"), 1);
  EXPECT_EQ(tokenizer.special_token_id("eos_token"), 3);
  EXPECT_EQ(tokenizer.special_token("mask_token"), std::nullopt);
  EXPECT_EQ(tokenizer.chat_template(), "{{ messages }}");
  EXPECT_THAT(tokenizer.encode("a<x>b<y>").ids, SizeIs(4));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{2, *tokenizer.token_to_id("<x>"), 2}), "b b");
  const PaddingOptions padding = tokenizer.default_padding();
  EXPECT_EQ(padding.direction, "left");
  EXPECT_EQ(padding.pad_id, tokenizer.token_to_id("[PAD]"));
  std::ofstream(scratch / "chat_template.jinja") << "newer";
  EXPECT_EQ(Tokenizer::from_pretrained(scratch.path()).chat_template(), "newer");
  std::ofstream(scratch / "tokenizer_config.json") << R"({"padding_side": 3})";
  EXPECT_THAT(
      told_by([&] { Tokenizer::from_pretrained(scratch.path()); }),
      AllOf(StartsWith("text.file: "), HasSubstr("tokenizer_config.json: padding_side is number")));
}

TEST(Tokenizer, AFolderWithoutTokenizerJsonIsAnError) {
  const test::Scratch scratch;
  EXPECT_THAT(told_by([&] { Tokenizer::from_pretrained(scratch.path()); }),
              AllOf(StartsWith("text.missing: there is no "), HasSubstr("save_pretrained")));
}

TEST(Tokenizer, AnUnknownComponentIsNamed) {
  const auto said = [](const SmallTokenizer& small) { return told_by([&] { small.make(); }); };
  EXPECT_THAT(said({.model = R"({"type": "Neural", "vocab": {}})"}),
              StartsWith("text.component: model is of the kind 'Neural', which is no model"));
  EXPECT_THAT(
      said({.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "Jieba"}]})"}),
      StartsWith("text.component: pre_tokenizer.pretokenizers[0] is of the kind 'Jieba'"));
  EXPECT_THAT(said({.normalizer = R"({"type": "Rot13"})"}),
              HasSubstr("no normalizer that levin knows"));
  EXPECT_THAT(said({.post_processor = R"({"type": "X"})"}), HasSubstr("no post-processor"));
  EXPECT_THAT(said({.decoder = R"({"type": "X"})"}), HasSubstr("no decoder"));
  EXPECT_THAT(said({.normalizer = "{}"}), HasSubstr("normalizer has no 'type'"));
}

TEST(Tokenizer, AMalformedFileIsAnErrorWithItsPlace) {
  const auto said = [](const std::string& json) {
    return told_by([&] { Tokenizer::from_json(json); });
  };
  const auto model = [&](const std::string& model) {
    return said(SmallTokenizer{.model = model}.json());
  };
  EXPECT_THAT(said("{"), StartsWith("text.file: the file is no JSON at byte "));
  EXPECT_THAT(said("{}"), HasSubstr("has no 'model'"));
  EXPECT_THAT(said(std::string(600, '[')), HasSubstr("nests more than 500 deep"));
  EXPECT_THAT(said(R"({"version": "2.0"})"), HasSubstr("version is '2.0', wanted 1.0"));
  EXPECT_THAT(model(R"({"type": "WordLevel", "vocab": {"a": -1}})"),
              HasSubstr("an id that is no whole number"));
  EXPECT_THAT(model(R"({"type": "WordLevel", "vocab": {"a": 4294967296}})"),
              HasSubstr("below 2^31"));
  EXPECT_THAT(model(R"({"type": "WordLevel"})"), HasSubstr("model has no vocab"));
  EXPECT_THAT(model(R"({"type": "WordLevel", "vocab": [["a", 0.5]]})"),
              HasSubstr("a vocab that is no object"));
  EXPECT_THAT(model(R"({"type": "Unigram", "vocab": [["a"]]})"), HasSubstr("no [token, score]"));
  EXPECT_THAT(model(R"({"type": "BPE", "vocab": {"a": 0}})"), HasSubstr("has no merges"));
  EXPECT_THAT(model(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})"),
              HasSubstr("no token 'b'"));
  EXPECT_THAT(model(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]})"),
              HasSubstr("no pair of tokens"));
  EXPECT_THAT(model(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]})"),
              HasSubstr("no pair"));
  EXPECT_THAT(said(SmallTokenizer{.normalizer =
                                      R"({"type": "Precompiled", "precompiled_charsmap": "AQAA"})"}
                       .json()),
              HasSubstr("normalizer.precompiled_charsmap is cut off"));
}

TEST(Tokenizer, ModelsOfOldFilesAreToldByWhatTheyHave) {
  const auto ids = [](const std::string& model) {
    return SmallTokenizer{.model = model}.make().encode("ab").ids;
  };
  EXPECT_THAT(ids(R"({"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})"), ElementsAre(2));
  EXPECT_THAT(
      ids(R"({"vocab": {"[UNK]": 0, "a": 1, "##b": 2}, "continuing_subword_prefix": "##"})"),
      ElementsAre(1, 2));
  EXPECT_THAT(ids(R"({"vocab": [["?", 0.0], ["a", -1.0], ["b", -1.0]], "unk_id": 0})"),
              ElementsAre(1, 2));
  EXPECT_THAT(ids(R"({"vocab": {"<unk>": 0, "ab": 5}})"), ElementsAre(5));
}

}  // namespace
}  // namespace levin::text
