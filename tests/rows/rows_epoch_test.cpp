// An epoch of rows: masks, ranks, resume.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "levin/data/loader.h"
#include "levin/rows/batches/rows_dataset.h"
#include "levin/rows/recipes/recipe.h"
#include "levin/rows/rows.h"
#include "tests/rows/small_rows.h"

namespace levin::text {
namespace {

using test::kNot;
using test::Numbers;
using test::rows_of;
using test::RowsFiles;
using test::Table;

/// Each a text of its own.
std::string many_texts(int64_t count, bool labelled = false) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    std::string letters;
    for (int64_t rest = i + 26; rest > 0; rest /= 26) letters += static_cast<char>('a' + rest % 26);
    for (int64_t more = 0; more < i % 7; ++more) letters += 'z';
    text += "{\"text\": \"" + letters + "\"" + (labelled ? ", \"label\": 0" : "") + "}\n";
  }
  return text;
}

/// The rows of batches as texts, without padding.
std::vector<std::string> lines_of(const Batch& batch) {
  std::vector<std::string> lines;
  const Table ids = rows_of(batch["input_ids"]);
  const Table labels = rows_of(batch["labels"]);
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_added = batch.contains("sample_mask") &&
                          !batch["sample_mask"][static_cast<int64_t>(i)].item<bool>();
    if (is_added) continue;
    auto& line = lines.emplace_back();
    for (size_t j = 0; j < ids[i].size(); ++j) {
      if (ids[i][j] == 27) continue;
      line += std::to_string(ids[i][j]) + "/" + std::to_string(labels[i][j]) + " ";
    }
  }
  return lines;
}

std::vector<std::string> rest_of_epoch(DataLoader& loader, int64_t batches = -1) {
  std::vector<std::string> lines;
  for (Batch batch; batches != 0 && loader.next(batch); --batches) {
    for (std::string& line : lines_of(batch)) lines.push_back(std::move(line));
  }
  return lines;
}

struct RowsEpoch : ::testing::TestWithParam<std::string> {
  std::shared_ptr<Rows> made(const std::string& text, RowsOptions options = {}) {
    options.task = "mlm";
    options.mlm_probability = 0.5;
    options.batch_size = 4;
    options.seed = 11;
    options.train_sampling_strategy = GetParam();
    if (GetParam() == "packed") {
      options.packing = true;
      options.train_sampling_strategy = "random";
    }
    return files.rows(text, tokenizer, std::move(options));
  }
  RowsFiles files;
  Tokenizer tokenizer = files.tokenizer(/*around=*/true);
};

TEST_P(RowsEpoch, IsTheSameOnOneAndTwoRanks) {
  const auto rows = made(many_texts(96));
  auto whole = *rows->train_dataloader();
  auto all = rest_of_epoch(whole);
  std::vector<std::string> parts;
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto loader = *rows->train_dataloader();
    loader.set_slice({rank, 2}, /*even=*/true);
    for (auto& line : rest_of_epoch(loader)) parts.push_back(std::move(line));
  }
  std::ranges::sort(all);
  std::ranges::sort(parts);
  // Ranks may repeat a row, so that both have as many.
  EXPECT_LE(parts.size() - all.size(), 1U);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  EXPECT_EQ(all, parts);
  EXPECT_GT(all.size(), 30U);
}

TEST_P(RowsEpoch, GoesOnInItsMiddleAlsoOnAnotherNumberOfRanks) {
  const auto rows = made(many_texts(96));
  auto whole = *rows->train_dataloader();
  for (Batch batch; whole.next(batch);) continue;  // an epoch before it, with other masks
  auto first = rest_of_epoch(whole, 3);
  const State state = whole.state_dict();
  const auto wanted = rest_of_epoch(whole);
  auto again = *made(many_texts(96))->train_dataloader();
  again.load_state_dict(state);
  EXPECT_EQ(rest_of_epoch(again), wanted);
  std::vector<std::string> parts;
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto loader = *rows->train_dataloader();
    loader.set_slice({rank, 2}, true);
    loader.load_state_dict(state);
    for (auto& line : rest_of_epoch(loader)) parts.push_back(std::move(line));
  }
  for (const std::string& line : wanted) EXPECT_GT(std::ranges::count(parts, line), 0) << line;
}

TEST_P(RowsEpoch, HasOtherMasksThanTheNextOne) {
  auto loader = *made(many_texts(64))->train_dataloader();
  auto first = rest_of_epoch(loader);
  auto second = rest_of_epoch(loader);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first.size(), second.size());
  EXPECT_NE(first, second);
}

INSTANTIATE_TEST_SUITE_P(Orders, RowsEpoch,
                         ::testing::Values("random", "sequential", "group_by_length", "packed"));

TEST(RowsOrder, SequentialIsTheFilesAndValidationAlwaysIs) {
  RowsFiles files;
  const auto tokenizer = files.tokenizer();
  test::put(files.scratch / "val.jsonl", "{\"text\": \"x\"}\n{\"text\": \"y\"}\n");
  const auto rows =
      files.rows("{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n", tokenizer,
                 {.validation_file = (files.scratch / "val.jsonl").string(),
                  .batch_size = 2,
                  .train_sampling_strategy = "sequential",
                  .drop_last = true});
  auto train = *rows->train_dataloader();
  EXPECT_EQ(rest_of_epoch(train), (std::vector<std::string>{"1/1 28/28 ", "2/2 28/28 "}));
  auto validation = *rows->val_dataloader();
  EXPECT_EQ(rest_of_epoch(validation), (std::vector<std::string>{"24/24 28/28 ", "25/25 28/28 "}));
}

TEST(RowsOrder, OfABatchThatIsFilledUpWhatWasAddedDoesNotCount) {
  RowsFiles files;
  const auto tokenizer = files.tokenizer(true);
  const auto rows = files.rows(many_texts(5, /*labelled=*/true), tokenizer,
                               {.batch_size = 4, .pad_last_batch = true});
  auto loader = *rows->train_dataloader();
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(rows_of(batch["labels"]), (Table{{0}, {kNot}, {kNot}, {kNot}}));
  EXPECT_EQ(batch["sample_mask"].sum().item<int64_t>(), 1);
}

TEST(Masking, DrawsTheWantedPartsAndNeverWhatDoesNotCount) {
  constexpr int64_t kTokens = 400'000;
  std::vector<int32_t> tokens(kTokens, 7);
  for (int64_t i = 0; i < kTokens; i += 10) tokens[static_cast<size_t>(i)] = row::uncounted(3);
  std::vector<int64_t> ids(tokens.size());
  std::ranges::transform(tokens, ids.begin(), row::id_of);
  std::vector<int64_t> labels(tokens.size(), kNot);
  row::mask_tokens(
      tokens, 42, {.mask_id = 5, .vocab_size = 1000, .drawn = 0.15, .masked = 0.8, .replaced = 0.1},
      ids.data(), labels.data());
  int64_t drawn = 0, masked = 0, kept = 0;
  std::map<int64_t, int64_t> others;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i % 10 == 0) {
      ASSERT_EQ(ids[i], 3);
      ASSERT_EQ(labels[i], kNot);
    }
    if (labels[i] == kNot) continue;
    ASSERT_EQ(labels[i], 7);
    ++drawn;
    masked += ids[i] == 5;
    kept += ids[i] == 7;
    if (ids[i] != 5 && ids[i] != 7) ++others[ids[i]];
  }
  const auto near = [](int64_t count, double expected, double of) {
    const double deviation = std::sqrt(expected * (1 - expected / of));
    EXPECT_LT(std::abs(static_cast<double>(count) - expected), 4 * deviation);
  };
  near(drawn, 0.15 * 0.9 * kTokens, 0.9 * kTokens);
  const auto all = static_cast<double>(drawn);
  near(masked, 0.8001 * all, all);
  near(kept, 0.1001 * all, all);
  EXPECT_GT(others.size(), 950U);
  EXPECT_GE(others.begin()->first, 0);
  EXPECT_LT(others.rbegin()->first, 1000);
}

TEST(Masking, BelongsToItsSeed) {
  const std::vector<int32_t> tokens(100, 7);
  const auto drawn = [&](uint64_t seed) {
    std::vector<int64_t> ids(100, 7), labels(100, kNot);
    row::mask_tokens(tokens, seed,
                     {.mask_id = 5, .vocab_size = 9, .drawn = 0.5, .masked = 0.8, .replaced = 0.1},
                     ids.data(), labels.data());
    return std::pair(ids, labels);
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

}  // namespace
}  // namespace levin::text
