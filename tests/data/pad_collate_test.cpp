// Batches in few shapes: samples of different lengths, and a last batch that is shorter.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"

namespace {

using levin::Batch;
using levin::DataLoader;
using levin::data::PadOptions;
using levin::data::Sample;
using levin::test::error_of;
using testing::HasSubstr;

using Sizes = std::vector<int64_t>;

/// Sample i is `1 + i % 9` long and counts from i on.
Sample sentence(int64_t index) {
  const int64_t length = 1 + index % 9;
  return {{"tokens", torch::arange(index, index + length)},
          {"tags", torch::arange(length)},
          {"label", torch::tensor(index)}};
}

PadOptions to_few_lengths() {
  return {.lengths = {4, 8, 16}, .values = {{"tokens", 0}, {"tags", -100}}};
}

Batch padded_sentences(const std::vector<int64_t>& which,
                       const PadOptions& options = to_few_lengths()) {
  std::vector<Sample> samples;
  for (const int64_t index : which) samples.push_back(sentence(index));
  return levin::data::pad_collate(options)(std::move(samples));
}

TEST(PadCollate, TakesTheSmallestLengthThatHoldsAll) {
  EXPECT_EQ(padded_sentences({0, 1, 3})["tokens"].sizes(), (Sizes{3, 4}));
  EXPECT_EQ(padded_sentences({0, 4})["tokens"].sizes(), (Sizes{2, 8}));
  EXPECT_EQ(padded_sentences({8})["tokens"].sizes(), (Sizes{1, 16}));
}

TEST(PadCollate, PadsEachFieldWithItsValueAndSaysWhere) {
  const Batch batch = padded_sentences({2, 0});
  EXPECT_TRUE(torch::equal(batch["tokens"], torch::tensor({{2, 3, 4, 0}, {0, 0, 0, 0}})));
  EXPECT_TRUE(torch::equal(batch["tags"], torch::tensor({{0, 1, 2, -100}, {0, -100, -100, -100}})));
  EXPECT_TRUE(torch::equal(batch["label"], torch::tensor({2, 0})));
  EXPECT_TRUE(torch::equal(
      batch["mask"], torch::tensor({{true, true, true, false}, {true, false, false, false}})));
}

TEST(PadCollate, PadsTheDimThatIsNamed) {
  std::vector<Sample> waves;
  waves.push_back({{"wave", torch::ones({2, 3})}});
  waves.push_back({{"wave", torch::ones({2, 5})}});
  const Batch batch = levin::data::pad_collate(
      {.lengths = {6}, .values = {{"wave", 0.5}}, .dim = -1, .mask = "heard"})(waves);
  EXPECT_EQ(batch["wave"].sizes(), (Sizes{2, 2, 6}));
  EXPECT_EQ(batch["wave"][0].sum().item<float>(), 2 * (3 + 3 * 0.5));
  EXPECT_TRUE(torch::equal(batch["heard"].sum(1), torch::tensor({3, 5})));
}

TEST(PadCollate, ALoaderGivesBatchesOfFewShapes) {
  const auto dataset =
      levin::data::samples(90, sentence, {.collate = levin::data::pad_collate(to_few_lengths())});
  DataLoader loader(dataset, {.batch_size = 4,
                              .shuffle = true,
                              .num_workers = 2,
                              .pad_last_batch = true,
                              .padding_values = {{"label", -100}},
                              .seed = 1});
  std::set<std::vector<int64_t>> shapes;
  int64_t samples = 0;
  for (const Batch& batch : loader) {
    shapes.insert(batch["tokens"].sizes().vec());
    samples += batch["sample_mask"].sum().item<int64_t>();
  }
  EXPECT_EQ(samples, 90);
  EXPECT_THAT(shapes, testing::IsSubsetOf({Sizes{4, 4}, Sizes{4, 8}, Sizes{4, 16}}));
}

TEST(PadCollate, WhatCannotBePaddedIsNamed) {
  EXPECT_THAT(
      error_of([] { padded_sentences({0, 8}, {.lengths = {4}, .values = {{"tokens", 0}}}); }),
      HasSubstr(
          "data.pad.length: sample 1 of the batch has length 9, but the greatest of lengths is 4"));
  EXPECT_THAT(error_of([] { padded_sentences({1}, {.lengths = {4}, .values = {{"words", 0}}}); }),
              HasSubstr("data.pad.field: sample 0 of the batch has no field 'words'"));
  EXPECT_THAT(error_of([] { padded_sentences({1}, {.lengths = {4}, .values = {{"label", 0}}}); }),
              HasSubstr("data.pad.field: 'label' of sample 0 of the batch is []"));
  const auto uneven = [] {
    levin::data::pad_collate({.lengths = {4}, .values = {{"a", 0}, {"b", 0}}})(
        {{{"a", torch::ones(2)}, {"b", torch::ones(3)}}});
  };
  EXPECT_THAT(error_of(uneven),
              HasSubstr("data.pad.length: 'b' of sample 0 of the batch has length 3"));
}

TEST(PadCollate, LengthsAscendAndFieldsAreNamed) {
  for (const Sizes& lengths : {Sizes{}, Sizes{0, 4}, Sizes{8, 4}, Sizes{4, 4}}) {
    EXPECT_THAT(error_of([&] {
                  levin::data::pad_collate({.lengths = lengths, .values = {{"tokens", 0}}});
                }),
                HasSubstr("data.pad.options: got lengths"));
  }
  EXPECT_THAT(error_of([] { levin::data::pad_collate({.lengths = {4}}); }),
              HasSubstr("data.pad.options: got no field to pad"));
}

/// {"x", "label"} of 10 samples.
levin::DatasetPtr ten() {
  return levin::data::tensors(
      {{"x", torch::arange(20, torch::kFloat).view({10, 2})}, {"label", torch::arange(10)}});
}

TEST(PadLastBatch, RepeatsSamplesAndMarksThem) {
  DataLoader loader(ten(),
                    {.batch_size = 4, .pad_last_batch = true, .padding_values = {{"label", -100}}});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_TRUE(batch["sample_mask"].all().item<bool>());
  EXPECT_EQ(loader.added(), 0);
  ASSERT_TRUE(loader.next(batch) && loader.next(batch));
  EXPECT_TRUE(torch::equal(
      batch["x"], torch::tensor({{16., 17.}, {18., 19.}, {16., 17.}, {18., 19.}}, torch::kFloat)));
  EXPECT_TRUE(torch::equal(batch["label"], torch::tensor({8, 9, -100, -100})));
  EXPECT_TRUE(torch::equal(batch["sample_mask"], torch::tensor({true, true, false, false})));
  EXPECT_EQ(loader.added(), 2);
  EXPECT_FALSE(loader.next(batch));
  EXPECT_EQ(loader.added(), 0);
}

TEST(PadLastBatch, OfOneSampleAndOfAStream) {
  const auto stream = levin::test::numbers_in_shards({5});
  DataLoader loader(levin::IterableDatasetPtr(stream), {.batch_size = 4, .pad_last_batch = true});
  Batch batch;
  ASSERT_TRUE(loader.next(batch) && loader.next(batch));
  EXPECT_EQ(batch.size(), 4);
  EXPECT_EQ(batch["sample_mask"].sum().item<int64_t>(), 1);
}

/// Its place is counted in samples of the data set.
TEST(PadLastBatch, LeavesTheLoadersPlaceAsItWas) {
  const levin::DataLoaderOptions plain = {.batch_size = 4};
  levin::DataLoaderOptions padding = plain;
  padding.pad_last_batch = true;
  DataLoader with(ten(), padding), without(ten(), plain);
  EXPECT_EQ(with.size(), without.size());
  Batch batch;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(with.next(batch) && without.next(batch));
    EXPECT_EQ(with.state_dict().integer("samples"), without.state_dict().integer("samples"));
  }
}

TEST(PadLastBatch, NeedsABatchSizeAndALastBatch) {
  EXPECT_THAT(error_of([] {
                DataLoader(ten(), {.batch_size = 4, .drop_last = true, .pad_last_batch = true});
              }),
              HasSubstr("data.loader.pad_last_batch: got drop_last and pad_last_batch"));
  EXPECT_THAT(error_of([] {
                DataLoader loader(
                    ten(),
                    {.batch_size = 4, .pad_last_batch = true, .padding_values = {{"lable", -100}}});
                Batch batch;
                loader.next(batch);
              }),
              HasSubstr("data.batch.field"));
}

}  // namespace
