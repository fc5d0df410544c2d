// Tuner::scale_batch_size and batch_size_finder: the sizes tried, a limit of memory, ranks of which one has less,
// what is left of a search. tests/oracle/tuner_test.cpp compares the order of sizes with Lightning's.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <sstream>

#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/run/memory_left.h"
#include "levin/trainer/tuner/batch_size_search.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/sanitized.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace scale_batch_size_test {
namespace {

using namespace small_run;  // NOLINT
using levin::detail::MemoryLimit;
using levin::detail::PeakForecast;
using levin::detail::search_batch_size;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The sizes tried, then the one found.
std::vector<int64_t> tried(levin::ScaleBatchSizeOptions options, int64_t limit, int64_t fits) {
  std::vector<int64_t> sizes;
  const int64_t found = search_batch_size(options, limit, [&](int64_t size) {
    sizes.push_back(size);
    return size <= fits;
  });
  sizes.push_back(found);
  return sizes;
}

TEST(BatchSizeSearch, IsAtMostTheDataAndTriesWhatItReturns) {
  EXPECT_THAT(tried({}, 20, 1000), ElementsAre(2, 4, 8, 16, 20, 20));
  EXPECT_THAT(tried({}, 20, 17), ElementsAre(2, 4, 8, 16, 20, 16));
  EXPECT_THAT(tried({}, 1, 1000), ElementsAre(1, 1));
  EXPECT_THAT(tried({.max_val = 6}, 20, 1000), ElementsAre(2, 4, 6, 6));
  const levin::ScaleBatchSizeOptions halves{.mode = "binsearch", .margin = 0.0};
  EXPECT_THAT(tried(halves, 20, 1000), ElementsAre(2, 4, 8, 16, 20, 20));
  EXPECT_THAT(tried(halves, 20, 17), ElementsAre(2, 4, 8, 16, 20, 18, 17, 17));
  EXPECT_THAT(tried(halves, 20, 1), ElementsAre(2, 1, 1));
  EXPECT_THAT(tried({.mode = "binsearch", .margin = 0.25}, 20, 17),
              ElementsAre(2, 4, 8, 16, 20, 18, 17, 12));
}

TEST(BatchSizeSearch, ThrowsIfNothingFits) {
  for (const char* mode : {"power", "binsearch"}) {
    EXPECT_THAT(error_of([&] { tried({.mode = mode}, 20, 0); }),
                HasSubstr("trainer.scale_batch_size: a step with 1 sample does not fit"));
  }
  EXPECT_THAT(error_of([&] { tried({.init_val = 16, .max_trials = 2}, 20, 3); }),
              HasSubstr("none of 2 batch sizes from 16 down"));
}

TEST(PeakForecast, IsALineThroughTheLastTwoTrials) {
  PeakForecast forecast(100);
  EXPECT_EQ(forecast.peak_of(2), std::nullopt);
  forecast.note(2, 160);
  EXPECT_EQ(forecast.peak_of(4), 220);  // through the memory before the first trial
  forecast.note(4, 180);
  EXPECT_EQ(forecast.peak_of(8), 220);
  forecast.note(8, 170);
  EXPECT_EQ(forecast.peak_of(16), 170);  // never less
}

TEST(MemoryLeft, OfTheProcessIsWhatAnAllocationMayTake) {
  if (levin::test::kSanitized) GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
  EXPECT_GT(levin::detail::resident_bytes(), 10 << 20);
  EXPECT_GE(levin::detail::peak_bytes(), levin::detail::resident_bytes());
  const auto of_machine = levin::detail::memory_limits();
  ASSERT_FALSE(of_machine.empty());
  EXPECT_EQ(of_machine.front().of, "the machine");
  EXPECT_EQ(levin::test::run_child([] {
              rlimit limit{};
              ::getrlimit(RLIMIT_AS, &limit);
              limit.rlim_cur = rlim_t{64} << 30;
              ::setrlimit(RLIMIT_AS, &limit);
              for (const MemoryLimit& each : levin::detail::memory_limits()) {
                if (each.of != "the process (ulimit -v)") continue;
                return !each.kills && each.left > (int64_t{30} << 30) &&
                               each.left < (int64_t{64} << 30)
                           ? 0
                           : 1;
              }
              return 2;
            }),
            0);
}

/// Takes `per_sample` bytes for each sample of a batch, and throws above `fits` samples.
struct Hungry : Net {
  int64_t per_sample = 0;
  int64_t fits = 1 << 30;
  std::vector<int64_t> sizes;
  Hungry() : Net(0.0) {}
  using Net::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    sizes.push_back(batch.size());
    if (batch.size() > fits) C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory.");
    const at::Tensor loss = Net::training_step(batch);
    if (per_sample == 0) return loss;
    const at::Tensor large = at::ones({batch.size(), per_sample / 4}, at::kFloat);
    return loss + 0.0 * large.select(1, 0).sum();
  }
};

levin::DataLoader loader(int64_t size = 64, int64_t batch_size = 4) {
  return {dataset(size), {.batch_size = batch_size, .shuffle = true, .seed = 3}};
}

TEST(ScaleBatchSize, FindsTheLargestThatFitsAndLeavesTheModule) {
  const Scratch scratch;
  auto options = quiet(scratch.str());
  options.max_epochs = 1;  // of 2 batches at the largest size: a trial goes on in the next epoch
  levin::Trainer trainer(options);
  levin::seed_everything(5);
  const auto net = std::make_shared<Hungry>();
  net->fits = 37;
  std::vector<at::Tensor> before;
  for (const auto& value : net->parameters()) before.push_back(value.detach().clone());
  for (const auto& value : net->buffers()) before.push_back(value.clone());
  const at::Tensor random = levin::random_state().tensor("cpu").clone();
  ::testing::internal::CaptureStderr();
  int64_t told = 0;
  EXPECT_EQ(levin::Tuner(trainer).scale_batch_size(
                net, loader(), {.update_attr = [&](int64_t size) { told = size; }}),
            32);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told, 32);
  EXPECT_THAT(net->sizes, ElementsAre(2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64));
  EXPECT_THAT(said, HasSubstr("a batch size of 64 does not fit"));
  EXPECT_THAT(said, testing::Not(HasSubstr("accelerator.memory")));  // no advice: it is expected
  size_t i = 0;
  for (const auto& value : net->parameters()) EXPECT_TRUE(at::equal(value, before[i++]));
  for (const auto& value : net->buffers()) EXPECT_TRUE(at::equal(value, before[i++]));
  EXPECT_TRUE(at::equal(random, levin::random_state().tensor("cpu")));
  EXPECT_TRUE(fs::is_empty(scratch.path()));
  net->sizes.clear();
  EXPECT_EQ(levin::Tuner(trainer).scale_batch_size(
                net, loader(), {.mode = "binsearch", .steps_per_trial = 1, .margin = 0.0}),
            37);
  EXPECT_THAT(net->sizes, ElementsAre(2, 4, 8, 16, 32, 64, 48, 40, 36, 38, 37));
}

/// Returns the size that a search finds where the process has so many MB; 100 + the size, or an error's code.
int found_within(int64_t megabytes, const std::string& mode, const fs::path& log) {
  return levin::test::run_child([&] {
    at::set_num_threads(1);
    const Scratch scratch;
    auto options = quiet(scratch.str());
    options.accelerator = "cpu";
    levin::Trainer trainer(options);
    const auto net = std::make_shared<Hungry>();
    net->per_sample = 8 << 20;
    std::freopen(log.c_str(), "w", stderr);
    int64_t now = 0;
    for (const MemoryLimit& each : levin::detail::memory_limits()) {
      if (each.of == "the process (ulimit -v)") return 3;
    }
    {
      std::ifstream in("/proc/self/statm");
      in >> now;
      now *= ::sysconf(_SC_PAGESIZE);
    }
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = static_cast<rlim_t>(now + (megabytes << 20));
    ::setrlimit(RLIMIT_AS, &limit);
    const auto size = levin::Tuner(trainer).scale_batch_size(
        net, loader(128), {.mode = mode, .steps_per_trial = 2, .margin = 0.0});
    // The next size of the grid does not fit, or the search has not found the largest.
    const auto fits = [&](int64_t batch_size) {
      try {
        levin::TrainerOptions once = quiet(scratch.str());
        once.accelerator = "cpu";
        once.enable_checkpointing = false;
        once.max_steps = 2;
        levin::Trainer(once).fit(net, loader(128, batch_size));
        return true;
      } catch (const std::exception&) {
        return false;
      }
    };
    if (!fits(size)) return 1;
    if (fits(mode == "power" ? 2 * size : size + 1)) return 2;
    return 100 + static_cast<int>(size);
  });
}

TEST(ScaleBatchSize, FindsTheLargestOfItsGridWithinALimitOfMemory) {
  if (levin::test::kSanitized) GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
  const Scratch scratch;
  const auto said = [&](const fs::path& log) {
    std::ostringstream all;
    all << std::ifstream(log).rdbuf();
    return all.str();
  };
  const fs::path log = scratch.path() / "log";
  const int by_power = found_within(400, "power", log);
  EXPECT_GE(by_power, 100 + 16) << said(log);
  EXPECT_LE(by_power, 100 + 32) << said(log);
  const int by_halves = found_within(400, "binsearch", log);
  EXPECT_GE(by_halves, 100 + 24) << said(log);
  EXPECT_LE(by_halves, 100 + 50) << said(log);
}

TEST(ScaleBatchSize, RanksAgreeOnTheSizeThatFitsAllOfThem) {
  const Scratch scratch;
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const fs::path&) -> std::string {
                          auto options = quiet(scratch.str());
                          options.strategy = "ddp";
                          options.engine.sync_batchnorm = true;
                          options.seed = 3;
                          options.max_epochs = 1;
                          options.enable_checkpointing = false;
                          levin::Trainer trainer(options);
                          const auto net = std::make_shared<Hungry>();
                          net->fits = rank == 1 ? 10 : 1000;  // rank 1 runs out first
                          const auto train = loader(96);
                          const auto first = net->parameters()[0].detach().clone();
                          const auto size = levin::Tuner(trainer).scale_batch_size(
                              net, train, {.mode = "binsearch", .margin = 0.0});
                          if (size != 10) return "found " + std::to_string(size);
                          // The weights of rank 0 are everybody's since the search has begun.
                          if (rank == 0 && !at::equal(net->parameters()[0], first))
                            return "weights";
                          net->fits = 1000;
                          trainer.fit(net, train);
                          return "";
                        }),
              Each(""));
}

TEST(ScaleBatchSize, OfRanksIsAtMostTheirPartOfTheData) {
  const Scratch scratch;
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const fs::path&) -> std::string {
                          auto options = quiet(scratch.str());
                          options.seed = 3;
                          levin::Trainer trainer(options);
                          const auto size = levin::Tuner(trainer).scale_batch_size(
                              std::make_shared<Hungry>(), loader(40), {});
                          return size == 20 ? "" : "found " + std::to_string(size);
                        }),
              Each(""));
}

TEST(ScaleBatchSize, RefusesShardedStrategiesOfSeveralRanks) {
  const Scratch scratch;
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const fs::path&) {
                          auto options = quiet(scratch.str());
                          options.strategy = "fsdp";
                          levin::Trainer trainer(options);
                          return error_of([&] {
                            levin::Tuner(trainer).scale_batch_size(std::make_shared<Hungry>(),
                                                                   loader(), {});
                          });
                        }),
              Each(HasSubstr("trainer.scale_batch_size: got strategy 'fsdp' with 2 processes")));
}

TEST(ScaleBatchSize, AnErrorOfARankIsThrownOnAll) {
  struct Broken : Hungry {
    using Hungry::training_step;
    bool breaks = false;
    at::Tensor training_step(const levin::Batch& batch) override {
      if (breaks && batch.size() == 8) throw std::runtime_error("broken");
      return Hungry::training_step(batch);
    }
  };
  const Scratch scratch;
  const auto words = run_world(2, [&](int64_t rank, const fs::path&) {
    levin::Trainer trainer(quiet(scratch.str()));
    const auto net = std::make_shared<Broken>();
    net->breaks = rank == 1;
    levin::Tuner(trainer).scale_batch_size(net, loader(), {});
    return "";
  });
  EXPECT_THAT(words, Each(HasSubstr("broken")));
}

TEST(ScaleBatchSize, TakesTheLoaderOfAModuleOrDataModule) {
  struct Own : Hungry {
    std::optional<levin::DataLoader> train_dataloader() override { return loader(12); }
  };
  struct Data : levin::DataModule {
    std::optional<levin::DataLoader> train_dataloader() override { return loader(20); }
  };
  const Scratch scratch;
  levin::Trainer trainer(quiet(scratch.str()));
  const auto net = std::make_shared<Own>();
  EXPECT_EQ(levin::Tuner(trainer).scale_batch_size(net), 12);
  EXPECT_EQ(levin::Tuner(trainer).scale_batch_size(net, std::make_shared<Data>()), 20);
}

TEST(BatchSizeFinder, TrainsWithTheSizeAsIfTheLoaderHadIt) {
  const auto weights = [](bool searches) {
    const Scratch scratch;
    auto options = quiet(scratch.str());
    options.enable_checkpointing = false;
    options.max_epochs = 2;
    const auto finder = levin::batch_size_finder({.mode = "binsearch", .margin = 0.0});
    if (searches) options.callbacks = {finder};
    levin::seed_everything(5);
    const auto net = std::make_shared<Hungry>();
    net->fits = 11;
    levin::Trainer(options).fit(net, loader(64, searches ? 4 : 11));
    EXPECT_EQ(finder->optimal_batch_size(), searches ? std::optional<int64_t>(11) : std::nullopt);
    return net->parameters();
  };
  const auto searched = weights(true), by_hand = weights(false);
  for (size_t i = 0; i < searched.size(); ++i) EXPECT_TRUE(at::equal(searched[i], by_hand[i])) << i;
}

TEST(BatchSizeFinder, ComesBeforeALearningRateFinderInTheList) {
  const Scratch scratch;
  auto options = quiet(scratch.str());
  options.enable_checkpointing = false;
  options.max_epochs = 1;
  const auto rate = levin::learning_rate_finder({.num_training = 13});
  options.callbacks = {levin::batch_size_finder({.steps_per_trial = 1}), rate};
  const auto net = std::make_shared<Hungry>();
  net->fits = 5;
  levin::Trainer(options).fit(net, loader(64));
  const std::vector<int64_t> last(net->sizes.end() - 13 - 16, net->sizes.end());
  EXPECT_THAT(last, Each(4));  // both the search and the fit
  EXPECT_TRUE(rate->optimal_lr()->suggestion());
}

std::string refused(levin::ScaleBatchSizeOptions scale, levin::TrainerOptions options) {
  levin::Trainer trainer(options);
  return error_of(
      [&] { levin::Tuner(trainer).scale_batch_size(std::make_shared<Hungry>(), loader(), scale); });
}

TEST(ScaleBatchSize, RefusesBadInput) {
  const Scratch scratch;
  const auto plain = quiet(scratch.str());
  EXPECT_THAT(refused({.mode = "linear"}, plain), HasSubstr("wanted power or binsearch"));
  EXPECT_THAT(refused({.steps_per_trial = 0}, plain), HasSubstr("steps_per_trial = 0"));
  EXPECT_THAT(refused({.init_val = 0}, plain), HasSubstr("init_val = 0"));
  EXPECT_THAT(refused({.max_trials = -1}, plain), HasSubstr("max_trials = -1"));
  EXPECT_THAT(refused({.max_val = 0}, plain), HasSubstr("max_val = 0"));
  EXPECT_THAT(refused({.margin = 1.0}, plain), HasSubstr("margin = 1"));
  EXPECT_THAT(error_of([] { levin::batch_size_finder({.margin = -0.1}); }), HasSubstr("margin"));
  auto with_callback = plain;
  with_callback.callbacks = {levin::batch_size_finder()};
  EXPECT_THAT(refused({}, with_callback), HasSubstr("has the callback batch_size_finder"));
  struct Stream : levin::IterableDataset {
    std::unique_ptr<levin::SampleStream> open(int64_t, const levin::DrawContext&) const override {
      return nullptr;
    }
  };
  const levin::DataLoader stream(levin::IterableDatasetPtr(std::make_shared<Stream>()),
                                 {.batch_size = 4});
  levin::Trainer trainer(plain);
  EXPECT_THAT(error_of([&] {
                levin::Tuner(trainer).scale_batch_size(std::make_shared<Hungry>(), stream, {});
              }),
              HasSubstr("trainer.scale_batch_size: got the loader of a stream"));
  auto reloading = with_callback;
  reloading.reload_dataloaders_every_n_epochs = 1;
  EXPECT_THAT(
      error_of([&] { levin::Trainer(reloading).fit(std::make_shared<Hungry>(), loader()); }),
      HasSubstr("reload_dataloaders_every_n_epochs = 1"));
}

TEST(ScaleBatchSize, IsLeftOutInAFastDevRun) {
  const Scratch scratch;
  auto options = quiet(scratch.str());
  options.fast_dev_run = 1;
  levin::Trainer trainer(options);
  EXPECT_EQ(levin::Tuner(trainer).scale_batch_size(std::make_shared<Hungry>(), loader(64, 4), {}),
            4);
}

}  // namespace
}  // namespace scale_batch_size_test
