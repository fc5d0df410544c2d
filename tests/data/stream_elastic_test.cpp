// A stream that goes on inside an epoch on another number of ranks: each sample is read once.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "levin/data/loader.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"

namespace {

using levin::DataLoader;
using levin::State;
using levin::test::error_of;
using levin::test::flat;
using levin::test::from_zero;
using levin::test::numbers_in_shards;
using levin::test::read;
using testing::HasSubstr;
using testing::StartsWith;

struct Stream {
  std::vector<int64_t> sizes;
  bool tells_sizes = false;
  bool shuffle = false;
  int64_t open_shards = 4;
};

struct Attempt {
  int64_t ranks = 1;
  int64_t batch_size = 1;
  int64_t batches = -1;  ///< that each rank reads; -1: all
};

std::vector<DataLoader> loaders_of(const Stream& stream, const Attempt& attempt) {
  std::vector<DataLoader> loaders;
  for (int64_t rank = 0; rank < attempt.ranks; ++rank) {
    loaders.emplace_back(numbers_in_shards(stream.sizes, stream.tells_sizes),
                         levin::DataLoaderOptions{.batch_size = attempt.batch_size,
                                                  .shuffle = stream.shuffle,
                                                  .seed = 7,
                                                  .shuffle_buffer_size = 5,
                                                  .open_shards = stream.open_shards});
    loaders.back().set_slice({rank, attempt.ranks}, true);
  }
  return loaders;
}

/// What all attempts have read of one epoch, in the order of the alphabet; each goes on from where
/// the one before was saved, and is itself saved and loaded on its own number in between.
std::vector<int64_t> read_by(const Stream& stream, const std::vector<Attempt>& attempts) {
  std::vector<int64_t> all;
  std::vector<State> states;
  for (const Attempt& attempt : attempts) {
    std::vector<DataLoader> loaders = loaders_of(stream, attempt);
    std::vector<DataLoader> again = loaders_of(stream, attempt);
    std::vector<State> after;
    for (size_t rank = 0; rank < loaders.size(); ++rank) {
      if (!states.empty()) loaders[rank].load_state_dict(DataLoader::merged_state(states));
      const int64_t first = attempt.batches < 0 ? 0 : attempt.batches / 2;
      for (const int64_t number : flat(read(loaders[rank], first))) all.push_back(number);
      if (first > 0) again[rank].load_state_dict(loaders[rank].state_dict());
      DataLoader& rest = first > 0 ? again[rank] : loaders[rank];
      const int64_t more = attempt.batches < 0 ? -1 : attempt.batches - first;
      for (const int64_t number : flat(read(rest, more))) all.push_back(number);
      after.push_back(rest.state_dict());
    }
    states = std::move(after);
  }
  std::ranges::sort(all);
  return all;
}

int64_t sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

TEST(StreamElastic, EachSampleOfTheEpochIsReadOnce) {
  const std::vector<std::vector<Attempt>> runs = {
      {{4, 3, 3}, {3, 4, 2}, {1, 12, 1}, {2, 6}},
      {{1, 5, 2}, {2, 3, 1}, {4, 1, 3}, {3, 2}},
      {{2, 2, 4}, {4, 2, 2}, {2, 3, 2}, {1, 7}},
      {{3, 1, 7}, {4, 1, 5}, {5, 1}},
      {{4, 3, 3}, {1, 200}},
  };
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {36, 36, 36, 36}, {144}, {20, 31, 7, 0, 40, 9, 30, 22}, {40, 50, 30}}) {
    for (const bool shuffle : {false, true}) {
      for (const int64_t open_shards : {1, 4}) {
        for (size_t i = 0; i < runs.size(); ++i) {
          const bool tells = (i + sizes.size()) % 2 == 0;
          EXPECT_EQ(read_by({sizes, tells, shuffle, open_shards}, runs[i]), from_zero(sum(sizes)))
              << sizes.size() << " shards, shuffle " << shuffle << ", " << open_shards
              << " open, run " << i;
        }
      }
    }
  }
}

TEST(StreamElastic, CountsBatchesAsTheNewRanksDo) {
  const Stream stream{{36, 36, 36, 36}, /*tells_sizes=*/true};
  std::vector<State> states;
  for (DataLoader& loader : loaders_of(stream, {4, 3})) {
    read(loader, 4);  // a third of the epoch
    states.push_back(loader.state_dict());
  }
  for (const auto& [ranks, batch_size, done] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 12, 4}, {2, 6, 4}, {3, 4, 4}, {2, 3, 8}}) {
    std::vector<DataLoader> loaders = loaders_of(stream, {ranks, batch_size});
    loaders[0].load_state_dict(DataLoader::merged_state(states));
    EXPECT_EQ(loaders[0].batches_done(), done) << ranks << " ranks";
    EXPECT_EQ(std::ssize(read(loaders[0])), loaders[0].size() - done) << ranks << " ranks";
    EXPECT_EQ(loaders[0].epoch(), 1);
    EXPECT_EQ(std::ssize(read(loaders[0])), loaders[0].size());  // the next epoch is whole
  }
}

TEST(StreamElastic, WhatRanksHaveLeftIsAsEvenAsItCanBe) {
  // Two ranks have read one of their two shards; four go on, each with as many samples.
  const Stream stream{{12, 12, 12, 12}, false, false, /*open_shards=*/1};
  std::vector<State> states;
  for (DataLoader& loader : loaders_of(stream, {2, 3})) {
    read(loader, 5);
    states.push_back(loader.state_dict());
  }
  for (const int64_t ranks : {1, 2, 3, 4}) {
    std::vector<int64_t> counts;
    for (DataLoader& loader : loaders_of(stream, {ranks, 1})) {
      loader.load_state_dict(DataLoader::merged_state(states));
      counts.push_back(std::ssize(read(loader)));
    }
    EXPECT_LE(std::ranges::max(counts) - std::ranges::min(counts), 2) << ranks;
    EXPECT_EQ(sum(counts), 18) << ranks;
  }
}

// Numbers of a state that somebody has changed: none is counted up to, divided by or written at.
TEST(StreamElastic, ForgedStatesAreErrors) {
  const Stream stream{{6, 6}};
  std::vector<State> good;
  for (DataLoader& loader : loaders_of(stream, {2, 2})) {
    read(loader, 1);
    good.push_back(loader.state_dict());
  }
  ASSERT_EQ(error_of([&] { DataLoader::merged_state(good); }), "no error");
  const int64_t most = std::numeric_limits<int64_t>::max();
  const std::tuple<const char*, int64_t, const char*> cases[] = {
      {"num_shards", most, "shards read by 2 ranks"},
      {"num_shards", 0, "got 0 shards read by 2 ranks"},
      {"num_shards", -2, "got -2 shards read by 2 ranks"},
      {"rank", 2, "of rank 2 of 2"},
      {"rank", -1, "of rank -1 of 2"},
      {"rank", most, "of 2, wanted at least 1 and a rank of the world"},
      {"batches", most, "batches of 2 samples, wanted a position within an epoch"},
      {"batch_size", -1, "batches of -1 samples"}};
  for (const auto& [key, number, wanted] : cases) {
    std::vector<State> forged = good;
    forged[0].set(key, number);
    EXPECT_THAT(error_of([&] { DataLoader::merged_state(forged); }),
                testing::AllOf(StartsWith("data.loader.state: "), HasSubstr(wanted)))
        << key << " " << number;
  }
  for (const at::Tensor& places : {torch::zeros({0, 2}, at::kLong), torch::zeros({}, at::kLong),
                                   torch::zeros({2, 3}, at::kLong), torch::zeros({2, 2})}) {
    std::vector<State> forged = good;
    forged[0].set("places", places);
    EXPECT_THAT(error_of([&] { DataLoader::merged_state(forged); }),
                StartsWith("data.loader.state: "));
  }
  State readings;
  for (const int64_t ranks : {1021, 1031, 1033, 1039}) {  // primes
    State one;
    one.set("num_ranks", ranks).set("bounds", torch::zeros({2 * ranks}, at::kLong));
    readings.set(std::to_string(ranks), one);
  }
  std::vector<State> forged = good;
  forged[0].set("read_before", readings);
  EXPECT_THAT(error_of([&] { DataLoader::merged_state(forged); }),
              HasSubstr("have no common multiple up to"));
}

TEST(StreamElastic, StatesThatAreNotAllThereOrNotOfThisDataAreErrors) {
  const Stream stream{{6, 6}};
  std::vector<DataLoader> two = loaders_of(stream, {2, 2});
  for (DataLoader& loader : two) read(loader, 1);
  EXPECT_THAT(
      error_of([&] { DataLoader::merged_state({two[0].state_dict()}); }),
      StartsWith("data.loader.state: got the positions of 1 ranks in a dataset that 2 ranks read"));
  const State merged = DataLoader::merged_state({two[0].state_dict(), two[1].state_dict()});
  const auto load = [](const Stream& into, const State& state) {
    std::vector<DataLoader> one = loaders_of(into, {1, 2});
    return error_of([&] { one[0].load_state_dict(state); });
  };
  EXPECT_EQ(load(stream, merged), "no error");
  EXPECT_THAT(load({{6, 6, 6}}, merged), HasSubstr("the number of shards was 2 and is 3"));
  EXPECT_THAT(load({{6, 6}, false, true}, merged), HasSubstr("shuffle_buffer_size"));
  State changed = merged.child("read_before");
  State one = changed.child("000");
  one.set("bounds", torch::zeros({3}, torch::kLong));
  changed.set("000", one);
  EXPECT_THAT(
      load(stream, State(merged).set("read_before", changed)),
      StartsWith(
          "data.loader.state: the state lacks the 4 numbers that say which samples were read"));
  one.set("num_ranks", int64_t{0});
  changed.set("000", one);
  EXPECT_THAT(load(stream, State(merged).set("read_before", changed)),
              StartsWith("data.loader.state: got a state of 0 ranks"));
}

TEST(StreamElastic, OfAnEpochsStartIsRankZeros) {
  std::vector<DataLoader> two = loaders_of({{6, 6}}, {2, 2});
  for (DataLoader& loader : two) read(loader);
  const State merged = DataLoader::merged_state({two[0].state_dict(), two[1].state_dict()});
  std::vector<DataLoader> three = loaders_of({{6, 6}}, {3, 2});
  three[2].load_state_dict(merged);
  EXPECT_EQ(three[2].epoch(), 1);
  EXPECT_EQ(three[2].batches_done(), 0);
}

}  // namespace
