#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "levin/data/loader.h"
#include "levin/data/sampler.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"

namespace levin {
namespace {

std::vector<int64_t> random_lengths(int64_t size) {
  std::mt19937 random(3);
  std::vector<int64_t> lengths(static_cast<size_t>(size));
  for (int64_t& length : lengths) length = 1 + random() % 200;
  return lengths;
}

std::vector<int64_t> epoch_of(Sampler& sampler, int64_t epoch, int64_t consumed = 0) {
  sampler.start(epoch, consumed);
  std::vector<int64_t> all(static_cast<size_t>(sampler.size() - consumed));
  EXPECT_EQ(sampler.next(all), std::ssize(all));
  return all;
}

/// Of batches that are padded to their longest sample, the part that is padding.
double padding(const std::vector<int64_t>& order, const std::vector<int64_t>& lengths,
               size_t batch_size) {
  int64_t padded = 0;
  for (size_t begin = 0; begin < order.size(); begin += batch_size) {
    const size_t end = std::min(begin + batch_size, order.size());
    int64_t longest = 0;
    for (size_t i = begin; i < end; ++i) longest = std::max(longest, lengths[order[i]]);
    padded += longest * static_cast<int64_t>(end - begin);
  }
  return 1.0 - static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) /
                   static_cast<double>(padded);
}

TEST(LengthGroups, EachSampleOnceAndLittlePadding) {
  const auto lengths = random_lengths(5003);
  const auto sampler = length_grouped_sampler(lengths, 16, 7);
  const auto order = epoch_of(*sampler, 0);
  auto sorted = order;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, test::from_zero(5003));
  EXPECT_GT(padding(test::from_zero(5003), lengths, 16), 0.4);
  EXPECT_LT(padding(order, lengths, 16), 0.03);
}

TEST(LengthGroups, TheLongestComesFirstAndPartsAreSorted) {
  const auto lengths = random_lengths(4000);
  const auto order = epoch_of(*length_grouped_sampler(lengths, 8, 7), 3);
  EXPECT_EQ(lengths[order[0]], *std::ranges::max_element(lengths));
  for (size_t begin = 0; begin < order.size(); begin += 400) {
    for (size_t i = begin + 2; i < begin + 400; ++i) {  // the first may have been exchanged
      EXPECT_GE(lengths[order[i - 1]], lengths[order[i]]) << i;
    }
  }
}

TEST(LengthGroups, BelongToSeedAndEpochAndGoOnAnywhere) {
  const auto lengths = random_lengths(700);
  const auto a = length_grouped_sampler(lengths, 4, 7);
  const auto first = epoch_of(*a, 0);
  const auto second = epoch_of(*a, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(epoch_of(*a, 0), first);
  EXPECT_EQ(epoch_of(*length_grouped_sampler(lengths, 4, 7), 1), second);
  EXPECT_NE(epoch_of(*length_grouped_sampler(lengths, 4, 8), 1), second);
  EXPECT_EQ(epoch_of(*a, 1, 311), std::vector<int64_t>(second.begin() + 311, second.end()));
}

TEST(LengthGroups, RanksReadEachSampleOnceAndTheSameLengthsTogether) {
  const auto lengths = random_lengths(960);
  std::vector<test::Order> ranks;
  for (int64_t rank = 0; rank < 2; ++rank) {
    DataLoader loader(test::numbers(960),
                      {.batch_size = 8, .sampler = length_grouped_sampler(lengths, 8, 1)});
    loader.set_slice({rank, 2}, /*even=*/true);
    ranks.push_back(test::read(loader));
  }
  auto all = test::flat(ranks[0]);
  const auto other = test::flat(ranks[1]);
  all.insert(all.end(), other.begin(), other.end());
  std::ranges::sort(all);
  EXPECT_EQ(all, test::from_zero(960));
  int64_t apart = 0;
  for (size_t i = 1; i < ranks[0].size(); ++i) {
    apart += std::abs(lengths[ranks[0][i][0]] - lengths[ranks[1][i][0]]);
  }
  EXPECT_LT(apart, 2 * std::ssize(ranks[0]));
}

TEST(LengthGroups, InALoaderItsSeedCounts) {
  const auto lengths = random_lengths(90);
  const auto loader = [&](uint64_t sampler_seed, int64_t seed) {
    return DataLoader(test::numbers(90),
                      {.batch_size = 8,
                       .sampler = length_grouped_sampler(lengths, 8, sampler_seed),
                       .seed = seed});
  };
  DataLoader first = loader(1, 5), other = loader(2, 5), next = loader(1, 6), third = loader(3, 7);
  const auto order = test::read(first);
  EXPECT_EQ(test::read(other), order);
  EXPECT_NE(test::read(next), order);
  // The seed of the run that is taken up, or of rank 0. Ranks that repeat samples go over the end.
  third.load_state_dict(loader(1, 5).state_dict());
  third.set_slice({1, 4}, /*even=*/true);
  const auto part = test::flat(test::read(third));
  const auto all = test::flat(order);
  ASSERT_EQ(part.size(), 23U);
  for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], all[(4 * i + 1) % 90]) << i;
  EXPECT_NE(test::flat(test::read(third)), part);  // the next epoch
}

TEST(LengthGroups, ABatchOfNothingIsAnError) {
  EXPECT_EQ(test::error_id([] { length_grouped_sampler({1}, 0, 0); }), "data.sampler.size");
  EXPECT_TRUE(epoch_of(*length_grouped_sampler({}, 4, 0), 0).empty());
}

}  // namespace
}  // namespace levin
