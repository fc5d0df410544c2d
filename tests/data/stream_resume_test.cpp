// A stream that is resumed gives what it would have given, bit for bit.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "levin/data/loader.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"

namespace {

using levin::DataLoader;
using levin::DataLoaderOptions;
using levin::State;
using levin::test::error_of;
using levin::test::numbers_in_shards;
using levin::test::Order;
using levin::test::read;
using testing::HasSubstr;
using testing::StartsWith;

struct StreamCase {
  int64_t workers;
  bool shuffle;
  int64_t world;
};

void PrintTo(const StreamCase& which, std::ostream* out) {
  *out << which.workers << " workers, shuffle " << which.shuffle << ", " << which.world << " ranks";
}

class StreamResume : public testing::TestWithParam<StreamCase> {
 protected:
  static DataLoader loader(int64_t seed, int64_t workers = GetParam().workers) {
    DataLoader made(numbers_in_shards({7, 0, 12, 5, 9, 3}), {.batch_size = 2,
                                                             .shuffle = GetParam().shuffle,
                                                             .num_workers = workers,
                                                             .seed = seed,
                                                             .shuffle_buffer_size = 4,
                                                             .open_shards = 2});
    made.set_slice({GetParam().world - 1, GetParam().world}, true);
    return made;
  }
  static void read_to_second_epoch(DataLoader& from, Order& order) {
    while (from.epoch() < 2) {
      const Order rest = read(from);
      order.insert(order.end(), rest.begin(), rest.end());
    }
  }
};

TEST_P(StreamResume, AtEveryBatchEqualsNoInterruption) {
  DataLoader straight = loader(5);
  const int64_t batches = std::ssize(read(straight));
  straight.set_epoch(0);
  Order wanted;
  read_to_second_epoch(straight, wanted);
  for (int64_t done = 0; done <= batches; ++done) {
    for (const int64_t workers : {GetParam().workers, int64_t{1}}) {
      DataLoader first = loader(5);
      Order order = read(first, done);
      if (done % 2 == 1) first.at_end();        // what was looked at is not handed out
      DataLoader second = loader(99, workers);  // the state brings its seed
      second.load_state_dict(first.state_dict());
      EXPECT_EQ(second.batches_done(), done);
      const Order one = read(second, 1);
      order.insert(order.end(), one.begin(), one.end());
      DataLoader third = loader(5);
      third.load_state_dict(second.state_dict());
      read_to_second_epoch(third, order);
      EXPECT_EQ(order, wanted) << "after " << done << " batches and one more";
    }
  }
}

TEST_P(StreamResume, TheSameLoaderGoesBackWhileItRuns) {
  DataLoader one = loader(5);
  read(one, 1);
  const State state = one.state_dict();
  const Order wanted = read(one, 3);
  one.load_state_dict(state);
  EXPECT_EQ(read(one, 3), wanted);
}

INSTANTIATE_TEST_SUITE_P(DataLoader, StreamResume,
                         testing::Values(StreamCase{0, false, 1}, StreamCase{0, true, 1},
                                         StreamCase{2, false, 1}, StreamCase{2, true, 1},
                                         StreamCase{2, true, 2}, StreamCase{0, false, 4},
                                         StreamCase{2, true, 4}));

TEST(StreamState, SkipsByTheStreamsOwnSkip) {
  struct Seekable : levin::test::InShards {
    using InShards::InShards;
    struct Seeking : levin::SampleStream {
      int64_t& skipped;
      int64_t at = 0;
      explicit Seeking(int64_t& skipped) : skipped(skipped) {}
      bool next(levin::data::Sample& sample) override {
        sample = {{"index", torch::tensor(at++)}};
        return at <= 10;
      }
      int64_t skip(int64_t count) override {
        skipped += count;
        at += count;
        return count;
      }
    };
    mutable int64_t skipped = 0;
    std::unique_ptr<levin::SampleStream> open(int64_t, const levin::DrawContext&) const override {
      return std::make_unique<Seeking>(skipped);
    }
  };
  auto data = std::make_shared<Seekable>(levin::Batch(), std::vector<int64_t>{10});
  DataLoader first(data, {.batch_size = 3});
  read(first, 2);
  EXPECT_EQ(data->skipped, 0);
  DataLoader second(data, {.batch_size = 3});
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(read(second), (Order{{6, 7, 8}, {9}}));
  EXPECT_EQ(data->skipped, 6);
}

DataLoader stream_of(const std::vector<int64_t>& sizes, int64_t rank = 0, int64_t world = 1,
                     DataLoaderOptions options = {.batch_size = 2}) {
  DataLoader loader(numbers_in_shards(sizes), std::move(options));
  loader.set_slice({rank, world}, true);
  return loader;
}

TEST(StreamState, OfAnEpochsStartFitsAnyNumberOfRanks) {
  DataLoader first = stream_of({6, 6}, 0, 2);
  read(first);
  DataLoader second = stream_of({6, 6}, 2, 3);
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.epoch(), 1);
}

TEST(StreamState, ThatDoesNotFitIsAnErrorAndChangesNothing) {
  DataLoader first = stream_of({6, 6}, 0, 2);
  read(first, 1);
  const State state = first.state_dict();
  const auto load = [&](DataLoader loader) {
    return error_of([&] { loader.load_state_dict(state); });
  };
  EXPECT_EQ(load(stream_of({6, 6}, 0, 2)), "no error");
  EXPECT_THAT(load(stream_of({6, 6}, 0, 1)),
              StartsWith("data.loader.state: a state within an epoch needs the same settings: the "
                         "number of ranks was 2 and is 1 here"));
  EXPECT_THAT(load(stream_of({6, 6, 6, 6}, 0, 2)),
              HasSubstr("the number of shards was 2 and is 4"));
  EXPECT_THAT(load(stream_of({6, 6}, 1, 2)),
              StartsWith("data.loader.state: the state is of rank 0"));
  EXPECT_THAT(load(stream_of({6, 6}, 0, 2, {.batch_size = 2, .shuffle = true})),
              HasSubstr("shuffle_buffer_size (0: no shuffle) was 0 and is 1000 here"));
  EXPECT_THAT(error_of([&] { first.set_slice({0, 3}, true); }),
              StartsWith("data.loader.state: 1 batches of this dataset were read by 2 ranks"));
  const auto with = [&](const char* key, int64_t value) {
    State changed = state;
    changed.set(key, value);
    return error_of([&] { first.load_state_dict(changed); });
  };
  EXPECT_THAT(with("turn", 7),
              StartsWith("data.loader.state: got positions outside of the shards"));
  EXPECT_THAT(with("epoch", -1), StartsWith("data.loader.state"));
  EXPECT_EQ(read(first), (Order{{2, 3}, {4, 5}}));
  EXPECT_EQ(error_of([] { stream_of({6}).load_state_dict({}); }).substr(0, 18),
            "base.state.missing");
}

TEST(StreamState, OfAShorterShardIsAnError) {
  DataLoader first = stream_of({6});
  read(first, 2);
  DataLoader second = stream_of({3});
  second.load_state_dict(first.state_dict());
  EXPECT_THAT(
      error_of([&] { read(second); }),
      StartsWith(
          "data.stream.size: shard 0 ended after 3 samples, but 4 were read before the save"));
}

}  // namespace
