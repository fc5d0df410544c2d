#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <thread>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/data/read_epoch.h"
#include "tests/support/off_disk.h"
#include "tests/support/patience.h"

namespace {

using levin::Batch;
using levin::DataLoader;
using levin::data::Sample;
using levin::test::numbers;
using levin::test::read;
using namespace std::chrono_literals;

/// What a worker's thread looks like from inside, recorded by a data set.
struct Seen {
  std::atomic<int64_t> by_workers{0};
  std::atomic<int64_t> inside{0};
  std::atomic<int> intra_op_threads{0};
  std::atomic<bool> autocast{false};
  std::atomic<bool> grad{true};
};

levin::DatasetPtr recorder(Seen& seen, int64_t size) {
  const auto consumer = std::this_thread::get_id();
  return levin::data::samples(size, [&seen, consumer](int64_t index) {
    ++seen.inside;
    seen.grad = at::GradMode::is_enabled();
    if (std::this_thread::get_id() != consumer) {
      seen.intra_op_threads = at::get_num_threads();
      seen.autocast = at::autocast::is_autocast_enabled(at::kCPU);
      ++seen.by_workers;
    }
    --seen.inside;
    return Sample{{"index", torch::tensor(index)}};
  });
}

template <class Condition>
bool becomes_true(Condition condition) {
  return levin::test::soon(condition);
}

TEST(LoaderThreads, FetchAheadAndThenWait) {
  Seen seen;
  DataLoader loader(recorder(seen, 1000),
                    {.batch_size = 1, .num_workers = 2, .prefetch_factor = 3});
  read(loader, 1);
  EXPECT_TRUE(becomes_true([&] { return seen.by_workers >= 5; }));
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(seen.by_workers, 7) << "six ahead, and the one that was read";
}

TEST(LoaderThreads, StartWithTheFirstBatch) {
  Seen seen;
  DataLoader loader(recorder(seen, 1000), {.batch_size = 1, .num_workers = 2});
  loader.set_epoch(3);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(seen.by_workers, 0);
}

TEST(LoaderThreads, EndWhileTheyWaitForRoom) {
  for (int i = 0; i < 20; ++i) {
    Seen seen;
    {  // its end waits for the workers; one that waits for room for ever would hang the test
      DataLoader loader(recorder(seen, 1000), {.batch_size = 1, .num_workers = 3});
      read(loader, 1);
      if (i % 2 == 0) becomes_true([&] { return seen.by_workers >= 6; });
    }
    EXPECT_EQ(seen.inside, 0) << "a worker outlived the loader";
  }
}

TEST(LoaderThreads, FollowEveryJump) {
  DataLoader loader(numbers(100), {.batch_size = 2, .shuffle = true, .num_workers = 3, .seed = 1});
  DataLoader alone(numbers(100), {.batch_size = 2, .shuffle = true, .seed = 1});
  for (int64_t jump = 0; jump < 300; ++jump) {
    loader.set_epoch(jump % 7);
    alone.set_epoch(jump % 7);
    EXPECT_EQ(read(loader, jump % 5), read(alone, jump % 5));
  }
}

TEST(LoaderThreads, ComputeInOneThreadAndLeaveTheConsumersCountAlone) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  Seen seen;
  DataLoader loader(recorder(seen, 100), {.batch_size = 1, .num_workers = 1});
  read(loader, 1);
  EXPECT_TRUE(becomes_true([&] { return seen.by_workers > 0; }));
  EXPECT_EQ(seen.intra_op_threads, 1);
  EXPECT_EQ(at::get_num_threads(), 3);
  int of_a_new_thread = 0;
  std::thread([&] { of_a_new_thread = at::get_num_threads(); }).join();
  EXPECT_EQ(of_a_new_thread, 3);
  at::set_num_threads(before);
}

TEST(LoaderThreads, InheritWhatTheConsumersThreadIsSetTo) {
  Seen seen;
  DataLoader loader(recorder(seen, 100), {.batch_size = 1, .num_workers = 1});
  const bool before = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  read(loader, 1);
  at::autocast::set_autocast_enabled(at::kCPU, before);
  EXPECT_TRUE(becomes_true([&] { return seen.by_workers > 0; }));
  EXPECT_TRUE(seen.autocast);
}

TEST(LoaderThreads, RecordNoGradients) {
  for (const int64_t workers : {0, 2}) {
    Seen seen;
    DataLoader loader(recorder(seen, 100), {.batch_size = 1, .num_workers = workers});
    read(loader);
    EXPECT_FALSE(seen.grad);
    EXPECT_TRUE(at::GradMode::is_enabled());
  }
}

TEST(LoaderThreads, GiveTensorsThatCanBeTrainedOnEvenFromInferenceMode) {
  const auto dataset = levin::test::off_disk(levin::data::tensors({{"x", torch::rand({20, 3})}}));
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(dataset, {.batch_size = 5, .shuffle = true, .num_workers = workers});
    const c10::InferenceMode inference;
    for (const auto& batch : loader) EXPECT_FALSE(batch["x"].is_inference());
  }
}

int64_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

/// Threads that are there once a loader of so many workers has given its first batch.
int64_t threads_started(const levin::DatasetPtr& dataset, int64_t workers) {
  const int64_t before = threads_of_this_process();
  DataLoader loader(dataset, {.batch_size = 2, .shuffle = true, .num_workers = workers});
  Batch batch;
  loader.next(batch);
  return threads_of_this_process() - before;
}

TEST(LoaderThreads, AreNoMoreThanCoresToSpareForDataInMemoryAlone) {
  const auto data = levin::data::tensors({{"x", torch::rand({40, 3})}});
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  EXPECT_EQ(threads_started(data, cores + 3), cores - 1);
  EXPECT_EQ(threads_started(levin::test::off_disk(data), cores + 3), cores + 3);
}

TEST(LoaderThreads, BatchesMayBeLetGoOfInOtherThreads) {
  const auto x = torch::arange(512).to(at::kFloat).unsqueeze(1).expand({512, 64}).contiguous();
  DataLoader loader(levin::test::off_disk(levin::data::tensors({{"x", x}})),
                    {.batch_size = 4, .shuffle = true, .num_workers = 2, .seed = 1});
  std::mutex mutex;
  std::vector<Batch> shelf;
  std::atomic<bool> over{false};
  std::atomic<int64_t> torn{0};
  std::jthread reader([&] {
    while (!over) {
      std::vector<Batch> mine;
      {
        const std::lock_guard lock(mutex);
        mine.swap(shelf);
      }
      for (const Batch& batch : mine) {
        torn += !torch::equal(batch["x"], batch["x"].narrow(1, 0, 1).expand({4, 64}));
      }
    }
  });
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const auto& batch : loader) {
      const std::lock_guard lock(mutex);
      if (shelf.size() < 3) shelf.push_back(batch);
    }
  }
  over = true;
  reader.join();
  EXPECT_EQ(torn, 0);
}

}  // namespace
