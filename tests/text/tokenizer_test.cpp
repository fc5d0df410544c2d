#include "levin/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "tests/support/error_of.h"
#include "tests/support/sanitized.h"
#include "tests/support/scratch.h"
#include "tests/text/small_tokenizer.h"

namespace levin::text {
namespace {

using test::error_id;
using test::kBertTemplate;
using test::SmallTokenizer;
using test::told_by;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(Tokenizer, EncodesWithAllThatIsKnownOfAToken) {
  const Tokenizer tokenizer = SmallTokenizer{.post_processor = kBertTemplate}.make();
  const Encoding encoding = tokenizer.encode(EncodeInput{"b x", "a"});
  EXPECT_THAT(encoding.ids, ElementsAre(8, 2, 0, 9, 1, 9));
  EXPECT_THAT(encoding.type_ids, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(encoding.attention_mask, ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(encoding.special_tokens_mask, ElementsAre(1, 0, 0, 1, 0, 1));
  EXPECT_THAT(encoding.offsets, ElementsAre(Offset{0, 0}, Offset{0, 1}, Offset{2, 3}, Offset{0, 0},
                                            Offset{0, 1}, Offset{0, 0}));
  EXPECT_THAT(encoding.word_ids, ElementsAre(-1, 0, 1, -1, 0, -1));
  EXPECT_THAT(encoding.sequence_ids, ElementsAre(-1, 0, 0, -1, 1, -1));
}

TEST(Tokenizer, WithoutOffsetsTheIdsAreTheSame) {
  const Tokenizer tokenizer = SmallTokenizer{.post_processor = kBertTemplate}.make();
  const Encoding encoding = tokenizer.encode("b x", {.offsets = OffsetUnit::kNone});
  EXPECT_THAT(encoding.ids, ElementsAre(8, 2, 0, 9));
  EXPECT_THAT(encoding.offsets, IsEmpty());
  EXPECT_THAT(tokenizer.encode("b x", {.add_special_tokens = false}).ids, ElementsAre(2, 0));
}

TEST(Tokenizer, OffsetsCountBytesOrCodePoints) {
  const Tokenizer tokenizer = SmallTokenizer{}.make();
  EXPECT_THAT(tokenizer.encode("\u6f22 b").offsets, ElementsAre(Offset{0, 3}, Offset{4, 5}));
  EXPECT_THAT(tokenizer.encode("\u6f22 b", {.offsets = OffsetUnit::kCodePoints}).offsets,
              ElementsAre(Offset{0, 1}, Offset{2, 3}));
}

TEST(Tokenizer, GivenWordsKeepTheirNumbersAndOffsets) {
  const std::vector<std::string> words = {"a b", "c"};
  const Tokenizer tokenizer = SmallTokenizer{}.make();
  const Encoding encoding = tokenizer.encode(EncodeInput{std::span(words), std::nullopt});
  EXPECT_THAT(encoding.ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(encoding.word_ids, ElementsAre(0, 0, 1));
  EXPECT_THAT(encoding.offsets, ElementsAre(Offset{0, 1}, Offset{2, 3}, Offset{0, 1}));
}

TEST(Tokenizer, ABatchOnThreadsIsTheSameInOrder) {
  const Tokenizer tokenizer = SmallTokenizer{}.make();
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i) texts.push_back(i % 3 == 0 ? "a" : i % 3 == 1 ? "b b" : "c x a");
  const auto alone = tokenizer.encode_batch(texts, {.num_threads = 1});
  const auto threaded = tokenizer.encode_batch(texts, {.num_threads = 4});
  ASSERT_THAT(threaded, SizeIs(texts.size()));
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(alone[i].ids, threaded[i].ids);
    EXPECT_EQ(tokenizer.encode(texts[i]).ids, threaded[i].ids);
  }
  EXPECT_EQ(error_id([&] { tokenizer.encode_batch(texts, {.num_threads = -1}); }), "text.threads");
  texts[250] = "\xff";
  EXPECT_EQ(error_id([&] { tokenizer.encode_batch(texts, {.num_threads = 4}); }), "text.utf8");
}

TEST(Tokenizer, EncodingsOfAnEarlierCallAreFilledAgainInTheirMemory) {
  Tokenizer tokenizer = SmallTokenizer{.post_processor = kBertTemplate}.make();
  const std::vector<std::string> texts = {"a", "", "b b a a x c a", "c x a"};
  const std::vector<EncodeInput> pairs = {{"b x", "a"}, {"a a a", "b b b"}};
  std::vector<Encoding> encodings;
  // Each call finds what another kind of call left: longer and shorter, more and fewer, of pairs, cut, padded.
  const auto compare = [&] {
    for (const OffsetUnit unit : {OffsetUnit::kBytes, OffsetUnit::kNone, OffsetUnit::kCodePoints}) {
      const EncodeOptions options{.offsets = unit, .num_threads = 1};
      tokenizer.encode_batch_out(encodings, texts, options);
      EXPECT_EQ(encodings, tokenizer.encode_batch(texts, options));
      tokenizer.encode_batch_out(encodings, pairs, options);
      EXPECT_EQ(encodings, tokenizer.encode_batch(pairs, options));
    }
  };
  compare();
  tokenizer.set_padding(PaddingOptions{.length = 12});
  compare();
  tokenizer.set_truncation(TruncationOptions{.max_length = 7, .stride = 1});
  compare();
  tokenizer.set_truncation(std::nullopt);
  tokenizer.set_padding(std::nullopt);
  compare();

  const auto places = [&] {
    std::vector<const void*> found;
    for (const Encoding& one : encodings) {
      for (const auto* list : {&one.ids, &one.type_ids, &one.attention_mask,
                               &one.special_tokens_mask, &one.word_ids, &one.sequence_ids}) {
        found.push_back(list->data());
      }
      found.push_back(one.offsets.data());
    }
    return found;
  };
  tokenizer.encode_batch_out(encodings, texts);
  const auto before = places();
  tokenizer.encode_batch_out(encodings, texts);
  EXPECT_EQ(places(), before);
}

TEST(Tokenizer, AShortTextAfterALongOneIsAsItWasBefore) {
  const Tokenizer tokenizer =
      SmallTokenizer{.normalizer = R"({"type": "Lowercase"})", .post_processor = kBertTemplate}
          .make();
  const Encoding before = tokenizer.encode("B x");
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "A b ";
  const Encoding encoding = tokenizer.encode(text);
  ASSERT_THAT(encoding.ids, SizeIs(200'002));
  EXPECT_EQ(std::ranges::count(encoding.ids, 2), 100'000);
  EXPECT_EQ(encoding.offsets[200'000], (Offset{399'998, 399'999}));
  EXPECT_EQ(tokenizer.encode("B x").ids, before.ids);
  EXPECT_EQ(tokenizer.encode("B x").offsets, before.offsets);
}

TEST(Tokenizer, TheMemoryOfALongTextIsGivenBack) {
  if (test::kSanitized) GTEST_SKIP() << "the sanitizer's allocator does not say what is in use";
  const std::string bpe = R"({"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2,
    "ab": 3}, "merges": [["a", "b"]]})";
  const std::string unigram = R"({"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["a", -1],
    ["b", -1], ["ab", -1.5]]})";
  const std::string lowercase = R"({"type": "Lowercase"})";
  const std::string nfc =
      R"({"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]})";
  const std::string byte_level =
      R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})";
  const SmallTokenizer tokenizers[] = {
      {.normalizer = lowercase},
      {.model = bpe, .normalizer = nfc},
      {.model = bpe, .pre_tokenizer = "null", .normalizer = lowercase},  // one piece
      {.model = unigram, .pre_tokenizer = "null"},
      {.model = bpe, .pre_tokenizer = byte_level, .post_processor = byte_level}};
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += i % 4 == 0 ? "ä " : "Ab ";
  const auto in_use = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  for (const SmallTokenizer& parts : tokenizers) {
    const Tokenizer tokenizer = parts.make();
    EXPECT_THAT(tokenizer.encode("ä Ab").ids, Not(IsEmpty()));
    const size_t before = in_use();
    EXPECT_GT(tokenizer.encode(text, {.offsets = OffsetUnit::kCodePoints}).ids.size(), 700'000U);
    const size_t after = in_use();
    EXPECT_LT(after, before + (1U << 20)) << parts.json();
  }
}

TEST(Tokenizer, OffsetsOfAnEmptyTextAreTrimmedWhereSpecialTokensCameFirst) {
  // As tokenizers 0.23.3 does with these post-processors.
  const Tokenizer tokenizer =
      SmallTokenizer{.post_processor = R"({"type": "Sequence", "processors": [)" +
                                       std::string(kBertTemplate) +
                                       R"(, {"type": "ByteLevel", "trim_offsets": true}]})"}
          .make();
  for (const auto& [text, second] : {std::pair("", "a"), {"a", ""}, {"", ""}}) {
    const Encoding alone = tokenizer.encode(text);
    EXPECT_THAT(alone.offsets, SizeIs(alone.ids.size()));
    EXPECT_EQ(alone.offsets.front(), (Offset{0, 0}));
    EXPECT_EQ(alone.offsets.back(), (Offset{0, 0}));
    const Encoding pair = tokenizer.encode(EncodeInput{text, EncodeInput::Part(second)});
    EXPECT_EQ(pair.offsets.front(), (Offset{0, 0}));
    EXPECT_EQ(pair.offsets.back(), (Offset{0, 0}));
    EXPECT_EQ(std::ranges::count(pair.offsets, Offset{0, 1}), *text != 0 || *second != 0);
  }
}

TEST(Tokenizer, ABatchIsPaddedToItsLongest) {
  Tokenizer tokenizer = SmallTokenizer{}.make();
  const std::vector<std::string> texts = {"a", "a b c"};
  tokenizer.set_padding(PaddingOptions{.pad_id = 7, .pad_type_id = 1, .pad_to_multiple_of = 2});
  const auto padded = tokenizer.encode_batch(texts);
  EXPECT_THAT(padded[0].ids, ElementsAre(1, 7, 7, 7));
  EXPECT_THAT(padded[0].attention_mask, ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(padded[0].type_ids, ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(padded[0].special_tokens_mask, ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(padded[1].ids, ElementsAre(1, 2, 3, 7));
  tokenizer.set_padding(PaddingOptions{.direction = "left", .pad_id = 7, .length = 3});
  EXPECT_THAT(tokenizer.encode("a").ids, ElementsAre(7, 7, 1));
  EXPECT_EQ(error_id([&] { tokenizer.set_padding(PaddingOptions{.direction = "up"}); }),
            "text.padding");
  EXPECT_EQ(error_id([&] { tokenizer.default_padding(); }), "text.padding");
}

TEST(Tokenizer, WhatTruncationCutsOffOverflowsWithTheStride) {
  Tokenizer tokenizer = SmallTokenizer{.post_processor = kBertTemplate}.make();
  tokenizer.set_truncation(TruncationOptions{.max_length = 5, .stride = 1});
  const Encoding encoding = tokenizer.encode("a b c a b c");
  EXPECT_THAT(encoding.ids, ElementsAre(8, 1, 2, 3, 9));
  ASSERT_THAT(encoding.overflowing, SizeIs(2));
  EXPECT_THAT(encoding.overflowing[0].ids, ElementsAre(8, 3, 1, 2, 9));
  EXPECT_THAT(encoding.overflowing[1].ids, ElementsAre(8, 2, 3, 9));
  EXPECT_THAT(encoding.overflowing[1].offsets,
              ElementsAre(Offset{0, 0}, Offset{8, 9}, Offset{10, 11}, Offset{0, 0}));
  tokenizer.set_truncation(TruncationOptions{.max_length = 4, .direction = "left"});
  EXPECT_THAT(tokenizer.encode("a b c").ids, ElementsAre(8, 2, 3, 9));
}

TEST(Tokenizer, OfAPairTheLongerIsCutFirst) {
  Tokenizer tokenizer = SmallTokenizer{}.make();
  const auto lengths = [&](const char* first, const char* second) {
    const auto sequences = tokenizer.encode(EncodeInput{first, second}).sequence_ids;
    const auto of_second = std::count(sequences.begin(), sequences.end(), 1);
    return std::pair(sequences.size() - static_cast<size_t>(of_second),
                     static_cast<size_t>(of_second));
  };
  tokenizer.set_truncation(TruncationOptions{.max_length = 5});
  EXPECT_EQ(lengths("a", "a b c a b c"), std::pair(size_t{1}, size_t{4}));
  EXPECT_EQ(lengths("a b c a b c", "a b c a"), std::pair(size_t{3}, size_t{2}));
  tokenizer.set_truncation(TruncationOptions{.max_length = 5, .strategy = "only_second"});
  EXPECT_EQ(lengths("a b c a", "a b c"), std::pair(size_t{4}, size_t{1}));
  EXPECT_THAT(told_by([&] { lengths("a b c a b c", "a"); }),
              StartsWith("text.truncation: 2 tokens"));
  EXPECT_THAT(told_by([&] { tokenizer.encode("a b c a b c"); }),
              HasSubstr("there is only one; choose longest_first"));
}

TEST(Tokenizer, TruncationThatCannotBeIsAnError) {
  Tokenizer tokenizer = SmallTokenizer{.post_processor = kBertTemplate}.make();
  for (const TruncationOptions& options :
       {TruncationOptions{.max_length = -1}, TruncationOptions{.strategy = "all"},
        TruncationOptions{.direction = "up"}, TruncationOptions{.max_length = 5, .stride = 3}}) {
    EXPECT_EQ(error_id([&] { tokenizer.set_truncation(options); }), "text.truncation");
  }
  // Short enough for one text, too long for what a pair leaves.
  tokenizer.set_truncation(TruncationOptions{.max_length = 5, .stride = 2});
  EXPECT_THAT(told_by([&] { tokenizer.encode(EncodeInput{"a b c", "a b c"}); }),
              HasSubstr("with a stride of 2; give a stride below that"));
}

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

TEST(Tokenizer, TextThatIsNoUtf8NamesTheByte) {
  const Tokenizer tokenizer = SmallTokenizer{}.make();
  EXPECT_THAT(told_by([&] { tokenizer.encode("a \xc3("); }),
              StartsWith("text.utf8: byte 2 of the text (0xc3) is no UTF-8"));
  const std::string text = "a";
  EXPECT_THAT(told_by([&] { tokenizer.encode(std::string_view(text.data(), 1U << 30)); }),
              StartsWith("text.length: got a text of 1073741824 bytes"));
}

TEST(Tokenizer, WhatNoTokenStandsForIsAnError) {
  const Tokenizer word_level =
      SmallTokenizer{.model = R"({"type": "WordLevel", "unk_token": "?", "vocab": {"a": 0}})"}
          .make();
  EXPECT_THAT(told_by([&] { word_level.encode("x"); }), StartsWith("text.model: 'x' is not known"));
  const Tokenizer word_piece =
      SmallTokenizer{.model = R"({"type": "WordPiece", "vocab": {"a": 0}})"}.make();
  EXPECT_EQ(error_id([&] { word_piece.encode("x"); }), "text.model");
  const Tokenizer unigram =
      SmallTokenizer{.model = R"({"type": "Unigram", "unk_id": null, "vocab": [["a", -1.0]]})"}
          .make();
  EXPECT_EQ(error_id([&] { unigram.encode("x"); }), "text.model");
  const Tokenizer bpe =
      SmallTokenizer{.model =
                         R"({"type": "BPE", "unk_token": "?", "vocab": {"a": 0}, "merges": []})"}
          .make();
  EXPECT_EQ(error_id([&] { bpe.encode("x"); }), "text.model");
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

TEST(Tokenizer, DropoutLeavesMergesOut) {
  const auto with = [](const std::string& dropout) {
    return SmallTokenizer{.model =
                              R"({"type": "BPE", "dropout": )" + dropout +
                              R"(, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]})"};
  };
  EXPECT_THAT(with("0.0").make().encode("ab").ids, ElementsAre(2));
  EXPECT_THAT(with("1.0").make().encode("ab").ids, ElementsAre(0, 1));
  const Tokenizer half = with("0.5").make();
  int merged = 0;
  for (int i = 0; i < 1000; ++i) merged += half.encode("ab").ids.size() == 1;
  EXPECT_GT(merged, 400);
  EXPECT_LT(merged, 600);
  EXPECT_EQ(error_id([&] { with("1.5").make(); }), "text.file");
}

TEST(Tokenizer, AStreamGivesCharactersWhenTheyAreWhole) {
  const Tokenizer tokenizer =
      SmallTokenizer{
          .model = R"({"type": "BPE", "byte_fallback": true, "merges": [], "vocab":
                       {"<0xE6>": 0, "<0xBC>": 1, "<0xA2>": 2, "a": 3, "b": 4}})",
          .pre_tokenizer = "null",
          .decoder =
              R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]})"}
          .make();
  const Encoding encoding = tokenizer.encode("a\u6f22b");
  EXPECT_THAT(encoding.ids, ElementsAre(3, 0, 1, 2, 4));
  DecodeStream stream = tokenizer.decode_stream();
  std::vector<std::string> steps;
  for (const int32_t id : encoding.ids) steps.push_back(stream.step(id).value_or("-"));
  EXPECT_THAT(steps, ElementsAre("a", "-", "-", "\u6f22", "b"));
}

TEST(Tokenizer, AStreamWhoseTextTurnsIntoAnotherIsAnError) {
  // The last token loses its sign at the end, so that it has it again when one more comes.
  const Tokenizer tokenizer =
      SmallTokenizer{.decoder =
                         R"({"type": "Replace", "pattern": {"Regex": "^a$"}, "content": "zz"})"}
          .make();
  DecodeStream stream = tokenizer.decode_stream();
  EXPECT_EQ(stream.step(2), "b");
  const Tokenizer fused =
      SmallTokenizer{.decoder = R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                     {"type": "Replace", "pattern": {"Regex": "^(?:b|bb)$"}, "content": "x"}]})"}
          .make();
  DecodeStream turning = fused.decode_stream();
  EXPECT_EQ(turning.step(2), "x");
  EXPECT_THAT(told_by([&] { turning.step(1); }), StartsWith("text.stream: with token 1 "));
}

TEST(Tokenizer, TokensAndIdsFindEachOther) {
  Tokenizer tokenizer = SmallTokenizer{}.make();
  EXPECT_EQ(tokenizer.vocab_size(), 4);
  EXPECT_EQ(tokenizer.token_to_id("c"), 3);
  EXPECT_EQ(tokenizer.token_to_id("d"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(3), "c");
  EXPECT_EQ(tokenizer.id_to_token(4), std::nullopt);
  const std::vector<AddedToken> more = {{.content = "d"}, {.content = "a", .special = true}};
  tokenizer.add_tokens(more);
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_EQ(tokenizer.token_to_id("d"), 4);
  EXPECT_THAT(tokenizer.encode("xdx").ids, ElementsAre(0, 4, 0));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{1, 2}), "b");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{1, 2}, {.skip_special_tokens = false}), "a b");
}

}  // namespace
}  // namespace levin::text
