// What a tokenizer is read from: tokenizer.json, and the other files of a folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "levin/base/log_sink.h"
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
    "chat_template": "{{ messages }}", "additional_special_tokens": ["<x>", "<y>"]})";
  std::ofstream(scratch / "special_tokens_map.json")
      << R"({"eos_token": "c", "pad_token": {"content": "[P]"}})";
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
  EXPECT_EQ(padding.pad_id, tokenizer.token_to_id("[P]"));
  std::ofstream(scratch / "chat_template.jinja") << "newer";
  EXPECT_EQ(Tokenizer::from_pretrained(scratch.path()).chat_template(), "newer");
  std::ofstream(scratch / "tokenizer_config.json") << R"({"padding_side": 3})";
  EXPECT_THAT(
      told_by([&] { Tokenizer::from_pretrained(scratch.path()); }),
      AllOf(StartsWith("text.file: "), HasSubstr("tokenizer_config.json: padding_side is number")));
}

/// A folder of this tokenizer.json, and these other files; what is empty is not there.
struct SmallFolder {
  SmallTokenizer file = {};
  std::string config = {};
  std::string map = {};
  std::string added = {};
  std::string model = {};

  Tokenizer make() const {
    const test::Scratch scratch;
    std::ofstream(scratch / "tokenizer.json") << file.json();
    const std::pair<const char*, const std::string&> others[] = {{"tokenizer_config.json", config},
                                                                 {"special_tokens_map.json", map},
                                                                 {"added_tokens.json", added},
                                                                 {"config.json", model}};
    for (const auto& [name, json] : others) {
      if (!json.empty()) std::ofstream(scratch / name) << json;
    }
    return Tokenizer::from_pretrained(scratch.path());
  }
};

/// What levin logs meanwhile.
template <class Call>
std::string logged(Call&& call) {
  std::string text;
  const log::Sink before =
      log::set_sink([&](log::Level, std::string_view line) { text += std::string(line) + "\n"; });
  call();
  log::set_sink(before);
  return text;
}

// What is wanted here was asked of transformers 5.23 (tests/oracle/tokenizer_folders.py).
TEST(Tokenizer, SpecialTokensOfAModelHaveTheirRoles) {
  for (const char* config :
       {R"({"image_token": "<img>", "boi_token": "<x>"})",
        R"({"extra_special_tokens": {"image_token": "<img>", "boi_token": "<x>"}})",
        R"({"model_specific_special_tokens": {"image_token": "<img>", "boi_token": "<x>"}})"}) {
    const Tokenizer tokenizer = SmallFolder{.config = config}.make();
    EXPECT_EQ(tokenizer.special_token("image_token"), "<img>") << config;
    EXPECT_EQ(tokenizer.special_token_id("boi_token"), 5) << config;
    EXPECT_THAT(tokenizer.encode("a<img>b<x>").ids, ElementsAre(1, 4, 2, 5)) << config;
  }
  // A list that is there hides the older one; a dict does not.
  const Tokenizer list =
      SmallFolder{.config =
                      R"({"extra_special_tokens": ["<x>"], "additional_special_tokens": ["<y>"]})"}
          .make();
  EXPECT_EQ(list.token_to_id("<y>"), std::nullopt);
  const Tokenizer dict =
      SmallFolder{
          .config =
              R"({"extra_special_tokens": {"z_token": "<z>", "a_token": "<a>"}, "additional_special_tokens": ["<y>"]})"}
          .make();
  EXPECT_EQ(dict.token_to_id("<z>"), 4);  // in the file's order
  EXPECT_EQ(dict.token_to_id("<y>"), 6);
}

TEST(Tokenizer, OldFilesOfTokensCountWithoutAnAddedTokensDecoder) {
  const SmallFolder old{.config = R"({"eos_token": "b"})",
                        .map = R"({"eos_token": "c", "pad_token": "<p>"})",
                        .added = R"({"<y>": 5, "<p>": 4})"};
  const Tokenizer tokenizer = old.make();
  EXPECT_EQ(tokenizer.special_token("eos_token"), "c");
  EXPECT_EQ(tokenizer.special_token_id("pad_token"), 4);
  EXPECT_EQ(tokenizer.token_to_id("<y>"), 5);
  SmallFolder newer = old;
  newer.config =
      R"({"eos_token": "b", "added_tokens_decoder": {"4": {"content": "<x>", "special": true}}})";
  EXPECT_EQ(newer.make().special_token("eos_token"), "b");
  EXPECT_EQ(newer.make().special_token("pad_token"), std::nullopt);
  EXPECT_EQ(newer.make().token_to_id("<y>"), std::nullopt);
  EXPECT_EQ(newer.make().token_to_id("<x>"), 4);
}

TEST(Tokenizer, AFoldersClassMakesPartsOfItsOwn) {
  const SmallTokenizer bytes{
      .model =
          R"({"type": "BPE", "vocab": {"\u0120": 0, "a": 1, "b": 2, "\u0120a": 3}, "merges": ["\u0120 a"]})",
      .pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": true})",
      .decoder = R"({"type": "ByteLevel"})"};
  const auto ids = [&](const std::string& config, const std::string& model = "") {
    return SmallFolder{.file = bytes, .config = config, .model = model}.make().encode("a b").ids;
  };
  EXPECT_THAT(ids(R"({"tokenizer_class": "PreTrainedTokenizerFast"})"), ElementsAre(3, 0, 2));
  EXPECT_THAT(ids(R"({"tokenizer_class": "GPT2Tokenizer"})"), ElementsAre(1, 0, 2));
  EXPECT_THAT(ids(R"({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true})"),
              ElementsAre(3, 0, 2));
  EXPECT_THAT(ids("{}", R"({"model_type": "gpt2"})"), ElementsAre(1, 0, 2));
  EXPECT_THAT(ids(R"({"tokenizer_class": "GPT2Tokenizer"})", R"({"model_type": "mistral"})"),
              ElementsAre(3, 0, 2));
  // A Llama with ByteLevel is none of LlamaTokenizer's.
  EXPECT_THAT(ids(R"({"tokenizer_class": "LlamaTokenizer"})"), ElementsAre(3, 0, 2));
  const SmallFolder gpt2{.file = bytes, .config = R"({"tokenizer_class": "GPT2Tokenizer"})"};
  EXPECT_EQ(gpt2.make().special_token("eos_token"), "<|endoftext|>");
  EXPECT_THAT(
      told_by([] { SmallFolder{.config = R"({"tokenizer_class": "GPT2Tokenizer"})"}.make(); }),
      AllOf(StartsWith("text.component: "),
            HasSubstr("tokenizer_class is GPT2Tokenizer, which needs a BPE model, but "
                      "tokenizer.json has a WordLevel model")));
  EXPECT_THAT(
      logged([] { SmallFolder{.config = R"({"tokenizer_class": "T5TokenizerFast"})"}.make(); }),
      HasSubstr("T5Tokenizer of transformers builds"));
}

TEST(Tokenizer, AFoldersSettingsAreItsDefaults) {
  const Tokenizer tokenizer =
      SmallFolder{
          .file = {.post_processor = test::kBertTemplate},
          .config = R"({"truncation_side": "left", "max_len": 9, "split_special_tokens": true,
                    "model_input_names": ["input_ids"], "additional_special_tokens": ["<x>"]})"}
          .make();
  EXPECT_EQ(tokenizer.default_truncation().direction, "left");
  EXPECT_EQ(tokenizer.default_truncation().max_length, 9);
  EXPECT_THAT(tokenizer.encode("a <x>").ids, ElementsAre(8, 1, 0, 9));
  EXPECT_THAT(tokenizer.encode("a <x>", {.split_special_tokens = false}).ids,
              ElementsAre(8, 1, 4, 9));
  EXPECT_THAT(tokenizer.encode(EncodeInput{"a", "b"}).type_ids, ElementsAre(0, 0, 0, 0, 0));
  const Tokenizer padded =
      SmallFolder{
          .file =
              {.padding =
                   R"({"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": null,
                       "pad_id": 9, "pad_type_id": 1, "pad_token": "c"})"}}
          .make();
  EXPECT_EQ(padded.default_padding().direction, "left");
  EXPECT_EQ(padded.default_padding().pad_id, 3);
  EXPECT_EQ(padded.default_padding().pad_type_id, 0);
}

TEST(Tokenizer, KeysOfItsFilesAreKnownOrNamed) {
  const auto said = [](const std::string& config) {
    return told_by([&] { SmallFolder{.config = config}.make(); });
  };
  EXPECT_THAT(said(R"({"fix_mistral_regex": true})"),
              AllOf(StartsWith("text.component: "), HasSubstr("tokenizer_config.json"),
                    HasSubstr("'fix_mistral_regex' is true, wanted false")));
  EXPECT_THAT(said(R"({"fast_tokenizer_files": ["tokenizer.4.json"]})"),
              HasSubstr("'fast_tokenizer_files'"));
  EXPECT_THAT(said(R"({"post_processor": {"type": "X"}})"), HasSubstr("wanted no such key"));
  EXPECT_EQ(said(R"({"fix_mistral_regex": false, "fast_tokenizer_files": [], "errors": "x"})"),
            "no error");
  const std::string told = logged([] {
    SmallFolder{
        .file = {.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
                             {"type": "WhitespaceSplit", "keeps": true}]})",
                 .added_tokens = R"([{"id": 4, "content": "<x>", "odd": 1}])"},
        .config =
            R"({"new_gate": 3, "auto_map": {"AutoTokenizer": ["x.X", null]}, "lucky_token": 7})",
        .map = R"({"eos_token": "a", "odd_role": "b"})"}
        .make();
  });
  EXPECT_THAT(told, HasSubstr("tokenizer_config.json has keys that levin does not know and "
                              "ignores: lucky_token, new_gate;"));
  EXPECT_THAT(told, HasSubstr("auto_map names Python code for AutoTokenizer"));
  EXPECT_THAT(told, HasSubstr("added_tokens[0].odd, pre_tokenizer.pretokenizers[0].keeps;"));
  EXPECT_THAT(
      told,
      HasSubstr(
          "special_tokens_map.json has keys that levin does not know and ignores: odd_role;"));
  EXPECT_EQ(std::ranges::count(told, '\n'), 4);
}

TEST(Tokenizer, AFolderWithoutTokenizerJsonIsAnError) {
  const test::Scratch scratch;
  EXPECT_THAT(told_by([&] { Tokenizer::from_pretrained(scratch.path()); }),
              AllOf(StartsWith("text.missing: there is no "), HasSubstr("save_pretrained")));
}

TEST(Tokenizer, AnUnknownComponentIsNamed) {
  const auto said = [](const SmallTokenizer& small) { return told_by([&] { small.make(); }); };
  EXPECT_THAT(said({.model = R"({"type": "Neural", "vocab": {}})"}),
              StartsWith("text.component: model has the type 'Neural', which is not a model"));
  EXPECT_THAT(
      said({.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "Jieba"}]})"}),
      StartsWith("text.component: pre_tokenizer.pretokenizers[0] has the type 'Jieba'"));
  EXPECT_THAT(said({.normalizer = R"({"type": "Rot13"})"}),
              HasSubstr("not a normalizer that levin supports"));
  EXPECT_THAT(said({.post_processor = R"({"type": "X"})"}), HasSubstr("not a post-processor"));
  EXPECT_THAT(said({.decoder = R"({"type": "X"})"}), HasSubstr("not a decoder"));
  EXPECT_THAT(said({.normalizer = "{}"}), HasSubstr("normalizer has no 'type'"));
}

TEST(Tokenizer, AMalformedFileIsAnErrorWithItsPlace) {
  const auto said = [](const std::string& json) {
    return told_by([&] { Tokenizer::from_json(json); });
  };
  const auto model = [&](const std::string& model) {
    return said(SmallTokenizer{.model = model}.json());
  };
  EXPECT_THAT(said("{"), StartsWith("text.file: the file is not JSON at byte "));
  EXPECT_THAT(said("{}"), HasSubstr("has no 'model'"));
  EXPECT_THAT(said(std::string(600, '[')), HasSubstr("nested more than 500 levels deep"));
  EXPECT_THAT(said(R"({"version": "2.0"})"), HasSubstr("version is '2.0', wanted 1.0"));
  EXPECT_THAT(model(R"({"type": "WordLevel", "vocab": {"a": -1}})"),
              HasSubstr("an id that is not an integer of 0 or more"));
  EXPECT_THAT(model(R"({"type": "WordLevel", "vocab": {"a": 4294967296}})"),
              HasSubstr("below 2^31"));
  EXPECT_THAT(model(R"({"type": "WordLevel"})"), HasSubstr("model has no vocab"));
  EXPECT_THAT(model(R"({"type": "WordLevel", "vocab": [["a", 0.5]]})"),
              HasSubstr("a vocab that is not an object"));
  EXPECT_THAT(model(R"({"type": "Unigram", "vocab": [["a"]]})"), HasSubstr("not [token, score]"));
  EXPECT_THAT(model(R"({"type": "BPE", "vocab": {"a": 0}})"), HasSubstr("has no merges"));
  EXPECT_THAT(model(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})"),
              HasSubstr("no token 'b'"));
  EXPECT_THAT(model(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]})"),
              HasSubstr("not two tokens with a space between"));
  EXPECT_THAT(model(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]})"),
              HasSubstr("an item that is not a pair"));
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
