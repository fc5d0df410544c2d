// What a tokenizer keeps in memory from call to call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <utility>

#include "levin/text/tokenizer.h"
#include "tests/support/sanitized.h"
#include "tests/text/small_tokenizer.h"

namespace levin::text {
namespace {

using test::kBertTemplate;
using test::SmallTokenizer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

int64_t bytes_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
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
  for (const SmallTokenizer& parts : tokenizers) {
    const Tokenizer tokenizer = parts.make();
    EXPECT_THAT(tokenizer.encode("ä Ab").ids, Not(IsEmpty()));
    const int64_t before = bytes_in_use();
    EXPECT_GT(tokenizer.encode(text, {.offsets = OffsetUnit::kCodePoints}).ids.size(), 700'000U);
    const int64_t after = bytes_in_use();
    EXPECT_LT(after, before + (1 << 20)) << parts.json();
  }
}

TEST(Tokenizer, ASequenceWithinAnotherIsKeptOnce) {
  if (test::kSanitized) GTEST_SKIP() << "the sanitizer's allocator does not say what is in use";
  const auto bytes_of = [](int64_t depth) {
    SmallTokenizer parts{.model = R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
                                      "merges": [["a", "b"]]})",
                         .pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false})"};
    for (int64_t i = 0; i < depth; ++i) {
      parts.pre_tokenizer =
          R"({"type": "Sequence", "pretokenizers": [)" + parts.pre_tokenizer + "]}";
    }
    const int64_t before = bytes_in_use();
    const Tokenizer tokenizer = parts.make();
    const int64_t bytes = bytes_in_use() - before;
    EXPECT_THAT(tokenizer.encode("ab").ids, ElementsAre(2)) << depth;
    return bytes;
  };
  bytes_of(1);  // what the first call leaves is not the tokenizer's
  EXPECT_LT(bytes_of(14), bytes_of(1) + (1 << 16));
}

}  // namespace
}  // namespace levin::text
