#include "levin/rows/cache/packing.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "levin/data/loader.h"
#include "tests/rows/small_rows.h"
#include "tests/support/error_of.h"

namespace levin::text {
namespace {

using row::pack;
using test::kNot;
using test::Numbers;
using test::rows_of;
using test::RowsFiles;
using test::Table;

Table table_of(const row::PackedRows& packed) {
  Table table;
  for (size_t i = 0; i + 1 < packed.offsets.size(); ++i) {
    table.emplace_back(packed.documents.begin() + packed.offsets[i],
                       packed.documents.begin() + packed.offsets[i + 1]);
  }
  return table;
}

TEST(Packing, TheLongestFirstEachIntoTheRowWithTheLeastRoomThatHoldsIt) {
  EXPECT_EQ(table_of(pack(Numbers{4, 2, 3, 1}, 4)), (Table{{0}, {2, 3}, {1}}));
  EXPECT_EQ(table_of(pack(Numbers{2, 7, 3, 5, 6, 1}, 10)), (Table{{1, 2}, {4, 0, 5}, {3}}));
  // Two rows with as much room: the one that was begun first.
  EXPECT_EQ(table_of(pack(Numbers{6, 6, 4, 4}, 10)), (Table{{0, 2}, {1, 3}}));
  EXPECT_TRUE(table_of(pack({}, 4)).empty());
}

TEST(Packing, OfManyDocumentsEachStandsOnceAndLittleIsEmpty) {
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same lengths each time
  Numbers lengths(20'000);
  int64_t sum = 0;
  for (int64_t& length : lengths) sum += length = 1 + random() % 300;
  const auto packed = pack(lengths, 512);
  auto all = packed.documents;
  std::ranges::sort(all);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int64_t>(i));
  for (const auto& row : table_of(packed)) {
    int64_t size = 0;
    for (const int64_t document : row) size += lengths[document];
    ASSERT_LE(size, 512);
  }
  EXPECT_GT(static_cast<double>(sum) / static_cast<double>(512 * (packed.offsets.size() - 1)),
            0.998);
}

struct PackedRowsTest : ::testing::Test {
  RowsFiles files;
};

TEST_F(PackedRowsTest, RowsHaveOneLengthAndNumbersOfTheirDocuments) {
  const auto tokenizer = files.tokenizer();
  const auto rows = files.rows(
      "{\"text\": \"a\"}\n{\"text\": \"bcd\"}\n{\"text\": \"efghijkl\"}\n{\"text\": \"m\"}\n",
      tokenizer, {.packing = true, .max_length = 6});
  const Batch batch = RowsFiles::all(*rows);
  EXPECT_EQ(rows_of(batch["input_ids"]),
            (Table{{5, 6, 7, 8, 9, 10}, {2, 3, 4, 28, 1, 28}, {13, 28, 27, 27, 27, 27}}));
  EXPECT_EQ(rows_of(batch["document"]),
            (Table{{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1}, {0, 0, -1, -1, -1, -1}}));
  EXPECT_EQ(rows_of(batch["labels"]),
            (Table{{5, 6, 7, 8, 9, 10}, {2, 3, 4, 28, 1, 28}, {13, 28, kNot, kNot, kNot, kNot}}));
  EXPECT_FALSE(batch.contains("attention_mask"));
  EXPECT_EQ(rows->report().truncated, 1);
  EXPECT_EQ(rows->report().samples, 3);
  EXPECT_EQ(rows->report().rows, 4);
}

TEST_F(PackedRowsTest, WhatIsLongerMayBeDivided) {
  const auto tokenizer = files.tokenizer();
  const auto rows = files.rows("{\"text\": \"abcdefg\"}\n{\"text\": \"x\"}\n", tokenizer,
                               {.packing = true, .packing_strategy = "bfd_split", .max_length = 5});
  EXPECT_EQ(rows_of(files.all(*rows)["input_ids"]), (Table{{1, 2, 3, 4, 5}, {6, 7, 28, 24, 28}}));
  EXPECT_EQ(rows->report().truncated, 0);
}

TEST_F(PackedRowsTest, LabelsStandAtTheFirstTokenOfADocumentAndTypesBesideIt) {
  const auto tokenizer = files.tokenizer(true);
  const auto rows = files.rows(
      "{\"text\": \"a\", \"text_pair\": \"b\", \"label\": 1}\n"
      "{\"text\": \"c\", \"text_pair\": \"d\", \"label\": 2}\n",
      tokenizer, {.packing = true, .max_length = 12});
  const Batch batch = RowsFiles::all(*rows);
  EXPECT_EQ(rows_of(batch["labels"]),
            (Table{{1, kNot, kNot, kNot, kNot, 2, kNot, kNot, kNot, kNot, kNot, kNot}}));
  EXPECT_EQ(rows_of(batch["token_type_ids"]), (Table{{0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0}}));
  EXPECT_EQ(rows_of(batch["document"]), (Table{{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, -1, -1}}));
}

TEST_F(PackedRowsTest, TagsStandBesideTheirTokens) {
  const auto tokenizer = files.tokenizer(true);
  const auto rows =
      files.rows("{\"tokens\": [\"ab\"], \"tags\": [1]}\n{\"tokens\": [\"c\"], \"tags\": [0]}\n",
                 tokenizer, {.packing = true, .max_length = 8});
  EXPECT_EQ(rows_of(files.all(*rows)["labels"]),
            (Table{{kNot, 1, kNot, kNot, kNot, 0, kNot, kNot}}));
}

TEST_F(PackedRowsTest, EveryBatchOfAnEpochHasOneShape) {
  const auto tokenizer = files.tokenizer();
  std::string text;
  for (int i = 0; i < 21; ++i) text += "{\"text\": \"abcd\"}\n";
  const auto rows =
      files.rows(text, tokenizer, {.packing = true, .max_length = 5, .batch_size = 4});
  auto loader = *rows->train_dataloader();
  int64_t counted = 0, batches = 0;
  for (const Batch& batch : loader) {
    EXPECT_EQ(batch["input_ids"].sizes(), at::IntArrayRef({4, 5}));
    counted += batch["labels"].ne(kNot).sum().item<int64_t>();
    ++batches;
  }
  EXPECT_EQ(batches, 6);
  EXPECT_EQ(counted, 21 * 5);  // what fills up the last batch does not count
}

TEST_F(PackedRowsTest, CountedLabelsLeaveOutWhatNobodyPredicts) {
  const Batch padded{{"labels", at::tensor({kNot, 5L, 6L, 3L, kNot, kNot}).view({2, 3})}};
  EXPECT_EQ(counted_labels(padded, false).item<int64_t>(), 3);
  EXPECT_EQ(counted_labels(padded, true).item<int64_t>(), 2);
  const Batch packed{{"labels", at::tensor({1L, 2L, 3L, 4L, kNot}).view({1, 5})},
                     {"document", at::tensor({0L, 0L, 1L, 1L, -1L}).view({1, 5})}};
  EXPECT_EQ(counted_labels(packed, true).item<int64_t>(), 2);
}

}  // namespace
}  // namespace levin::text
