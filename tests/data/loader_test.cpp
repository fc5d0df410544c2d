#include "levin/data/loader.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <iterator>
#include <set>
#include <thread>

#include "levin/base/random.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"

namespace {

using levin::Batch;
using levin::DataLoader;
using levin::DataLoaderOptions;
using levin::test::error_of;
using levin::test::flat;
using levin::test::indices_of;
using levin::test::numbers;
using levin::test::Order;
using levin::test::read;
using testing::StartsWith;

static_assert(std::input_iterator<DataLoader::Iterator>);
static_assert(std::sentinel_for<std::default_sentinel_t, DataLoader::Iterator>);

/// Samples that take their time, each another, so that workers overtake each other.
levin::DatasetPtr uneven_numbers(int64_t size) {
  return levin::data::samples(size, [](int64_t index) {
    std::this_thread::sleep_for(std::chrono::microseconds(index * 7 % 5 * 50));
    return levin::data::Sample{{"index", torch::tensor(index)}};
  });
}

TEST(DataLoader, GivesBatchesInOrder) {
  DataLoader loader(numbers(7), {.batch_size = 3});
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(read(loader), (Order{{0, 1, 2}, {3, 4, 5}, {6}}));
}

TEST(DataLoader, DropLastLeavesOutAShortBatch) {
  DataLoader loader(numbers(7), {.batch_size = 3, .drop_last = true});
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(read(loader), (Order{{0, 1, 2}, {3, 4, 5}}));
}

TEST(DataLoader, OrderDoesNotDependOnTheWorkers) {
  for (const auto& dataset : {numbers(101), uneven_numbers(101)}) {
    for (const bool drop_last : {false, true}) {
      Order wanted;
      for (const int64_t workers : {0, 1, 2, 4}) {
        DataLoader loader(dataset, {.batch_size = 8,
                                    .shuffle = true,
                                    .num_workers = workers,
                                    .drop_last = drop_last,
                                    .seed = 7});
        Order order;
        for (int epoch = 0; epoch < 3; ++epoch) {
          for (const auto& batch : loader) order.push_back(indices_of(batch));
        }
        if (workers == 0) wanted = order;
        EXPECT_EQ(order, wanted) << workers << " workers";
        EXPECT_EQ(std::ssize(order), 3 * loader.size());
      }
    }
  }
}

TEST(DataLoader, EveryEpochIsAnotherPermutation) {
  DataLoader loader(numbers(40), {.batch_size = 7, .shuffle = true, .num_workers = 2});
  const auto first = flat(read(loader));
  const auto second = flat(read(loader));
  const auto all = indices_of(numbers(40)->get(flat({first})));
  EXPECT_THAT(first, testing::UnorderedElementsAreArray(second));
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 40u);
  EXPECT_NE(first, second);
}

TEST(DataLoader, SeedIsThatOfTheRunUnlessGiven) {
  const auto order = [](int64_t run, std::optional<int64_t> own) {
    levin::seed_everything(run);
    DataLoader loader(numbers(40), {.batch_size = 40, .shuffle = true, .seed = own});
    return read(loader);
  };
  EXPECT_EQ(order(1, {}), order(1, {}));
  EXPECT_NE(order(1, {}), order(2, {}));
  EXPECT_EQ(order(1, {}), order(2, 1));
}

TEST(DataLoader, TakesASampler) {
  DataLoader loader(numbers(20), {.batch_size = 5, .sampler = levin::random_sampler(10, 3)});
  EXPECT_EQ(loader.size(), 2);
  auto same = levin::random_sampler(10, 3);
  std::vector<int64_t> wanted(10);
  same->start(0, 0);
  same->next(wanted);
  EXPECT_EQ(flat(read(loader)), wanted);
}

TEST(DataLoader, NextStepsToTheNextEpochAtTheEnd) {
  DataLoader loader(numbers(6), {.batch_size = 3});
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_EQ(loader.batches_done(), 1);
  EXPECT_TRUE(loader.next(batch));
  EXPECT_EQ(loader.epoch(), 0);
  EXPECT_FALSE(loader.next(batch));
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_EQ(loader.batches_done(), 0);
  EXPECT_TRUE(loader.next(batch));
}

TEST(DataLoader, ALoopThatWasLeftEarlyIsFollowedByTheNextEpoch) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(numbers(9), {.batch_size = 3, .num_workers = workers});
    for (const auto& batch : loader) {
      EXPECT_EQ(indices_of(batch).front(), 0);
      break;
    }
    EXPECT_EQ(loader.epoch(), 0);
    int64_t batches = 0;
    for (const auto& batch : loader) batches += batch.size() == 3;
    EXPECT_EQ(batches, 3);
    EXPECT_EQ(loader.epoch(), 2);
  }
}

TEST(DataLoader, ASecondBeginEndsTheFirst) {
  DataLoader loader(numbers(9), {.batch_size = 3, .num_workers = 1});
  auto first = loader.begin();
  auto second = loader.begin();
  EXPECT_EQ(indices_of(*second).front(), 0);
  ++first;
  EXPECT_TRUE(first == loader.end());
  ++second;
  EXPECT_EQ(indices_of(*second).front(), 3);
}

TEST(DataLoader, CopiesShareTheLoader) {
  DataLoader loader(numbers(9), {.batch_size = 3});
  DataLoader copy = loader;
  read(copy, 2);
  EXPECT_EQ(loader.batches_done(), 2);
  EXPECT_EQ(read(loader), (Order{{6, 7, 8}}));
}

TEST(DataLoader, SetEpochStandsAtItsStart) {
  const DataLoaderOptions options = {.batch_size = 4, .shuffle = true, .num_workers = 2, .seed = 1};
  DataLoader straight(numbers(30), options);
  read(straight);
  const Order wanted = read(straight);
  DataLoader loader(numbers(30), options);
  read(loader, 3);
  loader.set_epoch(1);
  EXPECT_EQ(loader.batches_done(), 0);
  EXPECT_EQ(read(loader), wanted);
  EXPECT_EQ(loader.epoch(), 2);
}

TEST(DataLoader, AnEmptyDataSetHasNoBatches) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(levin::data::samples(0, [](int64_t) { return Batch(); }),
                      {.batch_size = 4, .num_workers = workers});
    EXPECT_EQ(loader.size(), 0);
    EXPECT_TRUE(read(loader).empty());
    EXPECT_EQ(loader.epoch(), 1);
  }
}

TEST(DataLoader, MistakesInTheOptionsAreErrors) {
  struct Case {
    DataLoaderOptions options;
    const char* error;
  };
  const std::vector<Case> cases = {
      {{.batch_size = 0}, "data.loader.batch_size: got 0, wanted at least 1"},
      {{.num_workers = -1}, "data.loader.num_workers: got -1, wanted 0 or more"},
      {{.prefetch_factor = 0}, "data.loader.prefetch_factor: got 0, wanted at least 1"},
      {{.shuffle = true, .sampler = levin::sequential_sampler(3)},
       "data.loader.sampler: got a sampler"},
  };
  for (const Case& mistake : cases) {
    EXPECT_THAT(error_of([&] { DataLoader(numbers(3), mistake.options); }),
                StartsWith(mistake.error));
  }
  EXPECT_THAT(error_of([] { DataLoader(nullptr); }), StartsWith("data.loader.dataset"));
  EXPECT_THAT(error_of([] { DataLoader(numbers(3)).set_epoch(-1); }),
              StartsWith("data.loader.epoch"));
}

TEST(DataLoader, PinnedMemoryWithoutCudaIsAnError) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "CUDA is there";
  EXPECT_THAT(error_of([] { DataLoader(numbers(3), {.pin_memory = true}); }),
              StartsWith("data.batch.pin_memory"));
  DataLoader loader(numbers(3));
  EXPECT_THAT(error_of([&] { loader.set_pin_memory(true); }), StartsWith("data.batch.pin_memory"));
  EXPECT_EQ(error_of([&] { loader.set_pin_memory(false); }), "no error");
}

TEST(DataLoader, PinsItsBatchesOnRequest) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  const auto dataset = levin::data::tensors({{"index", torch::arange(40)}});
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(
        dataset,
        {.batch_size = 4, .shuffle = true, .num_workers = workers, .pin_memory = true, .seed = 1});
    DataLoader plain(dataset, {.batch_size = 4, .shuffle = true, .seed = 1});
    EXPECT_EQ(read(loader), read(plain));
    for (const auto& batch : loader) EXPECT_TRUE(batch["index"].is_pinned());
  }
}

}  // namespace
