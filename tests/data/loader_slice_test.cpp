#include <gmock/gmock.h>
#include <torch/torch.h>

#include <numeric>
#include <set>

#include "levin/data/loader.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"

namespace {

using levin::DataLoader;
using levin::DataLoaderOptions;
using levin::State;
using levin::test::error_of;
using levin::test::flat;
using levin::test::from_zero;
using levin::test::numbers;
using levin::test::Order;
using levin::test::read;
using testing::StartsWith;
using testing::UnorderedElementsAreArray;

DataLoader part(int64_t size, int64_t rank, int64_t world, bool even,
                DataLoaderOptions options = {.batch_size = 3, .num_workers = 1}) {
  options.shuffle = true;
  options.seed = 4;
  DataLoader loader(numbers(size), options);
  loader.set_slice({rank, world}, even);
  return loader;
}

TEST(DataLoaderSlice, TrainingRanksReadEqualCountsAndLeaveNothingOut) {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < 4; ++rank) {
    DataLoader loader = part(22, rank, 4, true);
    const auto mine = flat(read(loader));
    EXPECT_EQ(mine.size(), 6u);
    EXPECT_EQ(loader.size(), 2);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  EXPECT_THAT(std::set<int64_t>(all.begin(), all.end()), testing::ElementsAreArray(from_zero(22)));
}

TEST(DataLoaderSlice, TrainingRanksWithDropLastRepeatNothing) {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < 4; ++rank) {
    DataLoader loader = part(22, rank, 4, true, {.batch_size = 5, .drop_last = true});
    const auto mine = flat(read(loader));
    EXPECT_EQ(mine.size(), 5u);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), all.size());
}

TEST(DataLoaderSlice, EvaluationReadsEachSampleOnce) {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < 4; ++rank) {
    DataLoader loader = part(22, rank, 4, false);
    const auto mine = flat(read(loader));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  EXPECT_THAT(all, UnorderedElementsAreArray(from_zero(22)));
}

TEST(DataLoaderSlice, OneRankChangesNothing) {
  DataLoader sliced = part(22, 0, 1, true);
  DataLoader whole(numbers(22), {.batch_size = 3, .shuffle = true, .seed = 4});
  EXPECT_EQ(read(sliced), read(whole));
}

TEST(DataLoaderSlice, ResumesOnTheSameRanks) {
  for (int64_t rank = 0; rank < 2; ++rank) {
    DataLoader straight = part(22, rank, 2, true);
    read(straight, 2);
    DataLoader resumed = part(22, rank, 2, true);
    resumed.load_state_dict(straight.state_dict());
    EXPECT_EQ(resumed.batches_done(), 2);
    EXPECT_EQ(read(resumed), read(straight));
  }
}

TEST(DataLoaderSlice, StateCountsTheSamplesOfAllRanks) {
  DataLoader loader = part(22, 1, 4, true);
  read(loader, 1);
  EXPECT_EQ(loader.state_dict().integer("samples"), 12);
  read(loader, 1);
  EXPECT_EQ(loader.state_dict().integer("samples"), 22) << "24 were read, two of them twice";
}

TEST(DataLoaderSlice, ResumesOnAnotherNumberOfRanks) {
  for (const int64_t world : {1, 3, 4}) {
    for (const int64_t batches : {1, 2, 3}) {
      std::vector<int64_t> all;
      State state;
      for (int64_t rank = 0; rank < 2; ++rank) {
        DataLoader before = part(24, rank, 2, false);
        const auto mine = flat(read(before, batches));
        all.insert(all.end(), mine.begin(), mine.end());
        state = before.state_dict();
      }
      for (int64_t rank = 0; rank < world; ++rank) {
        DataLoader after = part(24, rank, world, false);
        after.load_state_dict(state);
        const auto mine = flat(read(after));
        all.insert(all.end(), mine.begin(), mine.end());
      }
      EXPECT_THAT(all, UnorderedElementsAreArray(from_zero(24)))
          << batches << " batches on 2 ranks, then " << world;
    }
  }
}

TEST(DataLoaderSlice, ASliceGivenAfterTheStateKeepsThePlace) {
  DataLoader before = part(24, 0, 2, true);
  read(before, 2);
  DataLoader after(numbers(24), {.batch_size = 3, .shuffle = true, .seed = 4});
  after.load_state_dict(before.state_dict());
  after.set_slice({0, 2}, true);
  EXPECT_EQ(read(after), read(before));
}

TEST(DataLoaderSlice, MistakesAreErrorsAndChangeNothing) {
  DataLoader loader(numbers(3), {.batch_size = 3});
  EXPECT_THAT(error_of([&] { loader.set_slice({2, 2}, true); }), StartsWith("data.sampler.rank"));
  EXPECT_THAT(error_of([&] { loader.set_slice({0, -1}, true); }), StartsWith("data.sampler.rank"));
  EXPECT_EQ(read(loader), (Order{{0, 1, 2}}));
  DataLoader split(numbers(8), {.sampler = levin::distributed_sampler(levin::sequential_sampler(8),
                                                                      0, 2, levin::Uneven::kPad)});
  EXPECT_THAT(error_of([&] { split.set_slice({0, 2}, true); }),
              StartsWith("data.loader.sampler: the sampler is already distributed"));
}

TEST(DataLoaderSlice, ARefusedSliceLeavesALoaderInUseWhereItIs) {
  const DataLoaderOptions options{
      .batch_size = 1, .shuffle = true, .num_workers = 1, .drop_last = true, .seed = 4};
  DataLoader straight(numbers(8), options);
  DataLoader refused(numbers(8), options);
  for (DataLoader* loader : {&straight, &refused}) {
    read(*loader, 1);
    loader->mark();
    read(*loader, 2);
  }
  EXPECT_THAT(error_of([&] { refused.set_slice({0, 9}, true); }), StartsWith("data.sampler.size"));
  EXPECT_EQ(refused.batches_done(), 3);
  EXPECT_EQ(read(refused, 2), read(straight, 2));
  ASSERT_TRUE(refused.rewind());
  ASSERT_TRUE(straight.rewind());
  const Order rest = read(refused);
  EXPECT_EQ(rest.size(), 7u) << "it does not go back to the mark";
  EXPECT_EQ(rest, read(straight));
}

}  // namespace
