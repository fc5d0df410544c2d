#include <gmock/gmock.h>
#include <torch/torch.h>

#include "levin/data/loader.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"

namespace {

using levin::Batch;
using levin::DataLoader;
using levin::State;
using levin::test::error_of;
using levin::test::numbers;
using levin::test::Order;
using levin::test::read;
using testing::StartsWith;

constexpr int64_t kSamples = 22;
constexpr int64_t kBatch = 4;

struct Case {
  int64_t workers;
  bool drop_last;
};

void PrintTo(const Case& which, std::ostream* out) {
  *out << which.workers << " workers, drop_last " << which.drop_last;
}

class Resume : public testing::TestWithParam<Case> {
 protected:
  static DataLoader loader(int64_t seed) {
    return {numbers(kSamples),
            {.batch_size = kBatch,
             .shuffle = true,
             .num_workers = GetParam().workers,
             .drop_last = GetParam().drop_last,
             .seed = seed}};
  }

  /// The rest of this epoch and the next one, as far as epoch 1's end.
  static void read_rest(DataLoader& from, Order& order) {
    while (from.epoch() < 2) {
      const Order rest = read(from);
      order.insert(order.end(), rest.begin(), rest.end());
    }
  }
};

TEST_P(Resume, AtEveryBatchEqualsNoInterruption) {
  DataLoader straight = loader(5);
  Order wanted;
  read_rest(straight, wanted);
  for (int64_t done = 0; done <= straight.size(); ++done) {
    DataLoader first = loader(5);
    Order order = read(first, done);
    DataLoader second = loader(99);  // the state brings its seed
    second.load_state_dict(first.state_dict());
    EXPECT_EQ(second.batches_done(), done);
    read_rest(second, order);
    EXPECT_EQ(order, wanted) << "after " << done << " batches";
  }
}

TEST_P(Resume, ASecondTimeEqualsNoInterruption) {
  DataLoader straight = loader(5);
  Order wanted;
  read_rest(straight, wanted);
  for (int64_t done = 0; done < straight.size(); ++done) {
    DataLoader first = loader(5);
    Order order = read(first, done);
    DataLoader second = loader(5);
    second.load_state_dict(first.state_dict());
    const Order one = read(second, 1);
    order.insert(order.end(), one.begin(), one.end());
    DataLoader third = loader(5);
    third.load_state_dict(second.state_dict());
    read_rest(third, order);
    EXPECT_EQ(order, wanted) << "after " << done << " batches and one more";
  }
}

TEST_P(Resume, InTheSecondEpochEqualsNoInterruption) {
  DataLoader first = loader(5);
  read(first);
  read(first, 2);
  const State state = first.state_dict();
  DataLoader second = loader(5);
  second.load_state_dict(state);
  EXPECT_EQ(second.epoch(), 1);
  EXPECT_EQ(read(second), read(first));
}

TEST_P(Resume, TheSameLoaderGoesBackWhileItRuns) {
  DataLoader one = loader(5);
  read(one, 1);
  const State state = one.state_dict();
  const Order wanted = read(one, 3);
  one.load_state_dict(state);
  EXPECT_EQ(read(one, 3), wanted);
}

TEST_P(Resume, StateCountsWhatWasHandedOutNotWhatWasFetched) {
  DataLoader one = loader(5);
  EXPECT_EQ(one.state_dict().integer("samples"), 0);
  Batch batch;
  for (int64_t done = 1; done <= one.size(); ++done) {
    one.next(batch);
    EXPECT_EQ(one.state_dict().integer("samples"), std::min(done * kBatch, kSamples));
    EXPECT_EQ(one.state_dict().integer("epoch"), 0);
  }
  one.next(batch);
  EXPECT_EQ(one.state_dict().integer("samples"), 0);
  EXPECT_EQ(one.state_dict().integer("epoch"), 1);
}

TEST_P(Resume, ALoopGoesOnInTheMiddleOfTheEpochOnce) {
  DataLoader first = loader(5);
  read(first, 3);
  DataLoader second = loader(5);
  second.load_state_dict(first.state_dict());
  Order order;
  for (const auto& batch : second) order.push_back(levin::test::indices_of(batch));
  EXPECT_EQ(order, read(first));
  int64_t batches = 0;
  for ([[maybe_unused]] const auto& batch : second) ++batches;
  EXPECT_EQ(batches, second.size());
}

INSTANTIATE_TEST_SUITE_P(DataLoader, Resume,
                         testing::Values(Case{0, false}, Case{0, true}, Case{1, false},
                                         Case{1, true}, Case{3, false}, Case{3, true}));

TEST(DataLoaderState, AStateThatDoesNotFitIsAnErrorAndChangesNothing) {
  DataLoader loader(numbers(10), {.batch_size = 2, .num_workers = 1});
  read(loader, 1);
  const auto load = [&](const char* key, int64_t value) {
    State state = loader.state_dict();
    state.set(key, value);
    return error_of([&] { loader.load_state_dict(state); });
  };
  EXPECT_THAT(load("size", 11), StartsWith("data.loader.state: the state is of a dataset of 11"));
  EXPECT_THAT(load("samples", 11), StartsWith("data.loader.state: got epoch 0 and 11 samples"));
  EXPECT_THAT(load("samples", -1), StartsWith("data.loader.state"));
  EXPECT_THAT(load("epoch", -1), StartsWith("data.loader.state"));
  EXPECT_THAT(error_of([&] { loader.load_state_dict({}); }), StartsWith("base.state.missing"));
  EXPECT_EQ(read(loader), (Order{{2, 3}, {4, 5}, {6, 7}, {8, 9}}));
}

}  // namespace
