#include "levin/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <utility>

#include "levin/base/log_sink.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/text/small_tokenizer.h"

namespace levin::text {
namespace {

using test::error_id;
using test::kBertTemplate;
using test::SmallTokenizer;
using test::told_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
  // Others take over what is left of the part of the thread that has this one.
  for (int i = 0; i < 20'000; ++i) texts.front() += " b";
  // Threads without a part, parts that end within a block of 16, and none at all.
  for (const size_t count : {0, 1, 16, 17, 33, 500}) {
    const std::span<const std::string> some(texts.data(), count);
    for (const int64_t threads : {1, 2, 3, 4, 40}) {
      const auto encodings = tokenizer.encode_batch(some, {.num_threads = threads});
      ASSERT_THAT(encodings, SizeIs(count));
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(tokenizer.encode(texts[i]), encodings[i]);
    }
  }
  EXPECT_EQ(error_id([&] { tokenizer.encode_batch(texts, {.num_threads = -1}); }), "text.threads");
  texts[250] = "\xff";
  EXPECT_EQ(error_id([&] { tokenizer.encode_batch(texts, {.num_threads = 4}); }), "text.utf8");
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
              StartsWith("text.truncation: truncation must remove 2 tokens"));
  EXPECT_THAT(told_by([&] { tokenizer.encode("a b c a b c"); }),
              HasSubstr("there is only one text; use longest_first"));
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
              HasSubstr("but the stride is 2; set a smaller stride"));
}

TEST(Tokenizer, TextThatIsNoUtf8NamesTheByte) {
  const Tokenizer tokenizer = SmallTokenizer{}.make();
  EXPECT_THAT(told_by([&] { tokenizer.encode("a \xc3("); }),
              StartsWith("text.utf8: byte 2 of the text (0xc3) is not UTF-8"));
  const std::string text = "a";
  EXPECT_THAT(told_by([&] { tokenizer.encode(std::string_view(text.data(), 1U << 30)); }),
              StartsWith("text.length: got a text of 1073741824 bytes"));
}

TEST(Tokenizer, WhatNoTokenStandsForIsAnError) {
  const Tokenizer word_level =
      SmallTokenizer{.model = R"({"type": "WordLevel", "unk_token": "?", "vocab": {"a": 0}})"}
          .make();
  EXPECT_THAT(told_by([&] { word_level.encode("x"); }),
              StartsWith("text.model: 'x' is not in the vocabulary"));
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
  EXPECT_THAT(told_by([&] { turning.step(1); }),
              StartsWith("text.stream: token 1 changes the text "));
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

// Python's library panics at each of these.
TEST(Tokenizer, ATemplateThatGetsWhatItCannotTakeIsAnError) {
  const std::string one =
      R"({"type": "TemplateProcessing", "special_tokens": {}, "pair": [], "single": )";
  const std::string a = R"([{"Sequence": {"id": "A", "type_id": 0}}]})";
  const std::string b = R"([{"Sequence": {"id": "B", "type_id": 0}}]})";
  const auto with = [](const std::string& processors) {
    return SmallTokenizer{.post_processor =
                              R"({"type": "Sequence", "processors": [)" + processors + "]}"}
        .make();
  };
  const Tokenizer empty_first = with(one + "[]}, " + one + a);
  EXPECT_THAT(told_by([&] { empty_first.encode("a"); }),
              StartsWith("text.component: a TemplateProcessing of a Sequence got 0 parts"));
  const Tokenizer many_first = with(std::string(test::kBertTemplate) + ", " + test::kBertTemplate);
  EXPECT_THAT(told_by([&] { many_first.encode("a"); }), HasSubstr("got 3 parts"));
  EXPECT_THAT(many_first.encode("a", {.add_special_tokens = false}).ids, ElementsAre(1));
  EXPECT_THAT(told_by([&] { with(one + b).encode("a"); }), HasSubstr("has a sequence B"));
  EXPECT_THAT(with(one + "[]}").encode("a").ids, ElementsAre());
  EXPECT_THAT(with(R"({"type": "Sequence", "processors": []})").encode("a").ids, ElementsAre(1));
}

TEST(Tokenizer, CleansUpAllButTextOfBpe) {
  const test::Scratch scratch;
  const auto folder = [&](const std::string& model, const std::string& more = "") {
    std::ofstream(scratch / "tokenizer.json") << SmallTokenizer{.model = model}.json();
    std::ofstream(scratch / "tokenizer_config.json")
        << R"({"clean_up_tokenization_spaces": true)" << more << "}";
    return Tokenizer::from_pretrained(scratch.path());
  };
  const std::vector<int32_t> ids = {0, 1, 0, 1};
  const std::string words = R"("vocab": {"a": 0, ".": 1})";
  const Tokenizer word_level = folder(R"({"type": "WordLevel", "unk_token": "a", )" + words + "}");
  EXPECT_EQ(word_level.decode(ids), "a. a.");
  EXPECT_EQ(word_level.decode(ids, {.clean_up_tokenization_spaces = false}), "a . a .");
  const std::string bpe = R"({"type": "BPE", "merges": [], )" + words + "}";
  std::string told;
  const log::Sink before =
      log::set_sink([&](log::Level, std::string_view text) { told += std::string(text); });
  const Tokenizer tokenizer = folder(bpe);
  EXPECT_EQ(tokenizer.decode(ids), "a . a .");
  EXPECT_EQ(told, "");
  EXPECT_EQ(tokenizer.decode(ids, {.clean_up_tokenization_spaces = true}), "a . a .");
  log::set_sink(before);
  EXPECT_THAT(told, HasSubstr("clean_up_tokenization_spaces is ignored, as in transformers"));
  EXPECT_EQ(
      folder(bpe,
             R"(, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": true)")
          .decode(ids),
      "a. a.");
}

// "said ' do" is "said'do" once it is cleaned up, of which "said '" is no beginning.
TEST(Tokenizer, AStreamCleansUpOnlyWhereItIsAsked) {
  const test::Scratch scratch;
  std::ofstream(scratch / "tokenizer.json")
      << SmallTokenizer{.model = R"({"type": "WordLevel", "unk_token": "said",
                                     "vocab": {"said": 0, "'": 1, "do": 2, "n't": 3}})"}
             .json();
  std::ofstream(scratch / "tokenizer_config.json") << R"({"clean_up_tokenization_spaces": true})";
  const Tokenizer tokenizer = Tokenizer::from_pretrained(scratch.path());
  const std::vector<int32_t> ids = {0, 1, 2, 3};
  EXPECT_EQ(tokenizer.decode(ids), "said'don't");
  DecodeStream stream = tokenizer.decode_stream();
  std::string text;
  for (const int32_t id : ids) text += stream.step(id).value_or("");
  EXPECT_EQ(text, "said ' do n't");
}

}  // namespace
}  // namespace levin::text
