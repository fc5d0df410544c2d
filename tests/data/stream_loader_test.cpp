// Streams in a loader: who reads what, in which order, how much of it, and what goes wrong.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "levin/data/loader.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"

namespace {

using levin::Batch;
using levin::DataLoader;
using levin::DataLoaderOptions;
using levin::test::error_id;
using levin::test::error_of;
using levin::test::flat;
using levin::test::from_zero;
using levin::test::numbers_in_shards;
using levin::test::Order;
using levin::test::read;
using testing::ElementsAreArray;
using testing::StartsWith;
using testing::UnorderedElementsAreArray;

std::vector<int64_t> uneven() { return {7, 0, 12, 5, 9, 3}; }  // 36 samples
constexpr int64_t kAll = 36;

TEST(StreamLoader, RanksReadEachSampleOnceWhateverTheirNumber) {
  for (const int64_t world : {1, 2, 3, 4, 5, 6, 7}) {
    for (const bool shuffle : {false, true}) {
      std::vector<int64_t> all;
      for (int64_t rank = 0; rank < world; ++rank) {
        DataLoader loader(numbers_in_shards(uneven()),
                          {.batch_size = 4, .shuffle = shuffle, .num_workers = 2, .seed = 3});
        loader.set_slice({rank, world}, /*even=*/true);
        const auto mine = flat(read(loader));
        all.insert(all.end(), mine.begin(), mine.end());
      }
      EXPECT_THAT(all, UnorderedElementsAreArray(from_zero(kAll))) << world << " ranks";
    }
  }
}

TEST(StreamLoader, ARankReadsWholeShardsWhereTheirNumberIsDivided) {
  std::set<int64_t> opened;
  auto data = numbers_in_shards(uneven());
  data->on_read = [&](int64_t shard, int64_t) { opened.insert(shard); };
  DataLoader loader(data, {.batch_size = 4});
  loader.set_slice({0, 2}, true);
  EXPECT_EQ(flat(read(loader)).size(), 7U + 12U + 9U);
  EXPECT_EQ(opened, (std::set<int64_t>{0, 2, 4}));
}

TEST(StreamLoader, ElseItKeepsEachSampleOfItsNumber) {
  DataLoader loader(numbers_in_shards({5, 4}), {.batch_size = 9, .open_shards = 1});
  loader.set_slice({1, 3}, true);
  // Sample i of shard s is rank (s + i) % 3's.
  EXPECT_EQ(read(loader), (Order{{1, 4, 5, 8}}));
}

TEST(StreamLoader, BatchesComeFromTheOpenShardsInTurn) {
  const auto of = [](int64_t open_shards) {
    DataLoader loader(numbers_in_shards({5, 3, 2}), {.batch_size = 2, .open_shards = open_shards});
    return read(loader);
  };
  EXPECT_EQ(of(1), (Order{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}}));
  EXPECT_EQ(of(2), (Order{{0, 1}, {5, 6}, {2, 3}, {7}, {4, 8}, {9}}));
  EXPECT_EQ(of(9), (Order{{0, 1}, {5, 6}, {8, 9}, {2, 3}, {7}, {4}}));
}

TEST(StreamLoader, DropLastLeavesOutTheShorterBatches) {
  DataLoader loader(numbers_in_shards({5, 3, 2}),
                    {.batch_size = 2, .drop_last = true, .open_shards = 2});
  EXPECT_EQ(read(loader), (Order{{0, 1}, {5, 6}, {2, 3}, {4, 8}}));
}

TEST(StreamLoader, TheOrderDoesNotDependOnTheNumberOfWorkers) {
  for (const bool shuffle : {false, true}) {
    std::optional<std::vector<Order>> wanted;
    for (const int64_t workers : {0, 1, 2, 3, 8}) {
      DataLoader loader(numbers_in_shards(uneven()), {.batch_size = 2,
                                                      .shuffle = shuffle,
                                                      .num_workers = workers,
                                                      .prefetch_factor = 3,
                                                      .seed = 3,
                                                      .shuffle_buffer_size = 4});
      const std::vector<Order> order = {read(loader), read(loader), read(loader)};
      if (!wanted) wanted = order;
      EXPECT_EQ(order, *wanted) << workers << " workers";
    }
    EXPECT_EQ((*wanted)[0] == (*wanted)[1], !shuffle) << "each epoch has an order of its own";
  }
}

TEST(StreamLoader, ShuffleDrawsFromABufferOfItsSize) {
  const auto order_of = [](int64_t buffer, int64_t seed) {
    DataLoader loader(
        numbers_in_shards({200}),
        {.batch_size = 200, .shuffle = true, .seed = seed, .shuffle_buffer_size = buffer});
    return flat(read(loader));
  };
  const auto far = order_of(200, 1);
  EXPECT_THAT(far, UnorderedElementsAreArray(from_zero(200)));
  EXPECT_FALSE(std::ranges::is_sorted(far));
  EXPECT_NE(far, order_of(200, 2));
  const auto near = order_of(10, 1);
  EXPECT_THAT(near, UnorderedElementsAreArray(from_zero(200)));
  // Place p is drawn among the first p + 10 samples.
  for (int64_t p = 0; p < 200; ++p) EXPECT_LT(near[static_cast<size_t>(p)], p + 10);
  EXPECT_THAT(order_of(1, 1), ElementsAreArray(from_zero(200)));
}

TEST(StreamLoader, ShuffleAlsoMixesTheShardsThatOneLaneReads) {
  DataLoader loader(
      numbers_in_shards({2, 2, 2, 2, 2, 2}),
      {.batch_size = 2, .shuffle = true, .seed = 1, .shuffle_buffer_size = 1, .open_shards = 1});
  const Order first = read(loader), second = read(loader);
  EXPECT_THAT(flat(first), UnorderedElementsAreArray(from_zero(12)));
  EXPECT_NE(first, second);
}

TEST(StreamLoader, HasASizeWhereTheShardsTellTheirs) {
  for (const int64_t world : {1, 2, 4}) {
    for (const bool drop_last : {false, true}) {
      int64_t fewest = kAll;
      for (int64_t rank = 0; rank < world; ++rank) {
        DataLoader loader(numbers_in_shards(uneven(), /*tells_sizes=*/true),
                          {.batch_size = 4, .shuffle = true, .drop_last = drop_last, .seed = 2});
        loader.set_slice({rank, world}, true);
        ASSERT_TRUE(loader.has_size());
        const int64_t size = loader.size();
        EXPECT_EQ(std::ssize(read(loader)), size);
        EXPECT_EQ(std::ssize(read(loader)), size) << "in the second epoch";
        fewest = std::min(fewest, size);
      }
      DataLoader together(numbers_in_shards(uneven(), true),
                          {.batch_size = 4, .drop_last = drop_last});
      together.set_slice({0, world}, true);
      together.end_together([](bool ended) { return ended; });
      EXPECT_EQ(together.size(), fewest);
    }
  }
}

TEST(StreamLoader, HasNoSizeElse) {
  const DataLoader loader(numbers_in_shards({3}), {.batch_size = 2});
  EXPECT_FALSE(loader.has_size());
  EXPECT_THAT(
      error_of([&] { (void)loader.size(); }),
      StartsWith("data.loader.size: the number of batches of this iterable dataset is unknown"));
  EXPECT_EQ(loader.dataset(), nullptr);
}

TEST(StreamLoader, AShardOfAnotherSizeThanItSaysIsAnError) {
  struct Liar : levin::test::InShards {
    using InShards::InShards;
    std::optional<int64_t> shard_size(int64_t) const override { return 4; }
  };
  DataLoader loader(
      std::make_shared<Liar>(Batch{{"index", torch::arange(7)}}, std::vector<int64_t>{4, 3}),
      {.batch_size = 2, .num_workers = 1});
  EXPECT_EQ(error_of([&] { read(loader); }),
            "data.stream.size: shard 1 ended after 3 samples, but its shard_size() is 4");
}

class StreamErrors : public testing::TestWithParam<int64_t> {};

TEST_P(StreamErrors, NameShardAndSampleAndLeaveTheLoaderWhereItStood) {
  auto data = numbers_in_shards({6, 6});
  std::atomic<bool> broken = true;
  data->on_read = [&](int64_t shard, int64_t sample) {
    if (broken && shard == 1 && sample == 3) throw std::runtime_error("not mounted");
  };
  DataLoader loader(data, {.batch_size = 2, .num_workers = GetParam()});
  EXPECT_EQ(read(loader, 3), (Order{{0, 1}, {6, 7}, {2, 3}}));
  Batch batch;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of([&] { loader.next(batch); }),
              "data.loader.sample: shard 1, sample 3: not mounted");
    EXPECT_EQ(loader.batches_done(), 3);
  }
  broken = false;
  EXPECT_EQ(read(loader), (Order{{8, 9}, {4, 5}, {10, 11}}));
}

TEST_P(StreamErrors, OfSamplesThatDoNotStackNameThem) {
  struct Ragged : levin::IterableDataset {
    struct Stream : levin::SampleStream {
      int64_t at = 0;
      bool next(levin::data::Sample& sample) override {
        sample = {{"x", torch::ones({at++ < 3 ? 2 : 5})}};
        return true;
      }
    };
    std::unique_ptr<levin::SampleStream> open(int64_t, const levin::DrawContext&) const override {
      return std::make_unique<Stream>();
    }
  };
  DataLoader loader(std::make_shared<Ragged>(), {.batch_size = 2, .num_workers = GetParam()});
  Batch batch;
  loader.next(batch);
  EXPECT_THAT(error_of([&] { loader.next(batch); }),
              StartsWith("data.loader.sample: shard 0, sample 4: data.samples.stack: 'x' is "
                         "Float [5] in sample 3, but Float [2] in sample 2"));
}

TEST_P(StreamErrors, OfAShardThatDoesNotOpen) {
  struct Closed : levin::IterableDataset {
    std::unique_ptr<levin::SampleStream> open(int64_t, const levin::DrawContext&) const override {
      return nullptr;
    }
  };
  DataLoader loader(std::make_shared<Closed>(), {.num_workers = GetParam()});
  EXPECT_THAT(error_of([&] { read(loader); }),
              StartsWith("data.loader.sample: shard 0, sample 0: data.stream.open: open() returned "
                         "a null pointer"));
}

INSTANTIATE_TEST_SUITE_P(StreamLoader, StreamErrors, testing::Values(0, 1, 2));

/// Batches of 3, 1 and 2 samples.
struct Readymade : levin::IterableDataset {
  struct Stream : levin::SampleStream {
    size_t at = 0;
    bool next(levin::data::Sample& sample) override {
      static const std::vector<std::vector<int64_t>> kBatches = {{0, 1, 2}, {3}, {4, 5}};
      if (at == kBatches.size()) return false;
      sample = {{"index", torch::tensor(kBatches[at++])}};
      return true;
    }
  };
  std::unique_ptr<levin::SampleStream> open(int64_t, const levin::DrawContext&) const override {
    return std::make_unique<Stream>();
  }
  bool in_batches() const override { return true; }
};

TEST(StreamLoader, HandsOutBatchesThatAreReadymade) {
  DataLoader loader(std::make_shared<Readymade>(), {.num_workers = 1});
  EXPECT_EQ(read(loader), (Order{{0, 1, 2}, {3}, {4, 5}}));
  loader.set_slice({1, 2}, true);
  EXPECT_EQ(read(loader), (Order{{3}}));
  EXPECT_THAT(error_of([] { DataLoader(std::make_shared<Readymade>(), {.batch_size = 2}); }),
              StartsWith("data.loader.batch_size: got 2, but the dataset yields batches"));
}

TEST(StreamLoader, KnowsItsEndBeforeItIsReadAndStaysWhereItIs) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(numbers_in_shards({3, 2}), {.batch_size = 2, .num_workers = workers});
    const Order wanted = {{0, 1}, {3, 4}, {2}};
    Order order;
    while (!loader.at_end()) {
      EXPECT_EQ(loader.batches_done(), std::ssize(order));
      const Order one = read(loader, 1);
      order.insert(order.end(), one.begin(), one.end());
    }
    EXPECT_EQ(order, wanted);
    EXPECT_EQ(loader.epoch(), 0);
    Batch batch;
    EXPECT_FALSE(loader.next(batch));
    EXPECT_EQ(loader.epoch(), 1);
    EXPECT_EQ(read(loader), wanted);
  }
}

TEST(StreamLoader, DataReadByIndexKnowsItsEndToo) {
  for (const bool drop_last : {false, true}) {
    DataLoader loader(levin::test::numbers(7), {.batch_size = 2, .drop_last = drop_last});
    for (int64_t done = 0; done < loader.size(); ++done) {
      EXPECT_FALSE(loader.at_end());
      read(loader, 1);
    }
    EXPECT_TRUE(loader.at_end());
    loader.set_epoch(1);
    EXPECT_FALSE(loader.at_end());
  }
}

TEST(StreamLoader, EndsWhenAnotherRankDoes) {
  DataLoader loader(numbers_in_shards({8}), {.batch_size = 2, .num_workers = 1});
  int64_t asked = 0;
  loader.end_together([&](bool ended) { return ended || ++asked == 3; });
  EXPECT_EQ(read(loader), (Order{{0, 1}, {2, 3}}));
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_EQ(read(loader).size(), 4U) << "the next epoch begins at the beginning";
}

TEST(StreamLoader, ALoopThatIsLeftEarlyIsFollowedByTheNextEpoch) {
  DataLoader loader(numbers_in_shards({8}), {.batch_size = 2, .num_workers = 1});
  for ([[maybe_unused]] const auto& batch : loader) break;
  Order order;
  for (const auto& batch : loader) order.push_back(levin::test::indices_of(batch));
  EXPECT_EQ(order, (Order{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(loader.epoch(), 2);
}

TEST(StreamLoader, OptionsThatDoNotFitAreErrors) {
  const auto made = [](const DataLoaderOptions& options) {
    return error_id([&] { DataLoader(numbers_in_shards({3}), options); });
  };
  EXPECT_EQ(made({.sampler = levin::sequential_sampler(3)}), "data.loader.sampler");
  EXPECT_EQ(made({.shuffle_buffer_size = 0}), "data.loader.stream");
  EXPECT_EQ(made({.open_shards = 0}), "data.loader.stream");
  EXPECT_EQ(made({.batch_size = 0}), "data.loader.batch_size");
  EXPECT_EQ(error_id([] { DataLoader(numbers_in_shards({})); }), "data.loader.stream");
  EXPECT_EQ(error_id([] { DataLoader{levin::IterableDatasetPtr()}; }), "data.loader.dataset");
  DataLoader loader(numbers_in_shards({3}));
  EXPECT_EQ(error_id([&] { loader.set_slice({2, 2}, true); }), "data.sampler.rank");
}

}  // namespace
