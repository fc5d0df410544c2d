// Several validation and test loaders: names of logged values, limits, hooks, checkpoints' monitors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/trainer/numbered_run.h"

namespace several_loaders {

using namespace numbered_run;  // NOLINT
using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

/// Logs the mean of the samples' numbers under several forms of log().
struct Several : Seeing {
  std::vector<std::pair<int64_t, int64_t>> batches;  // loader, batch
  std::vector<levin::DataLoader> loaders;

  void note_batch(int64_t batch_index) { batches.emplace_back(dataloader_index(), batch_index); }
  void validation_step(const levin::Batch& batch, int64_t batch_index) override {
    note_batch(batch_index);
    Seeing::validation_step(batch, batch_index);
    const auto mean = batch["number"].to(torch::kDouble).mean();
    log("mean", mean);
    log("both", mean, {.on_step = true, .on_epoch = true});
    log("all", mean, {.add_dataloader_idx = false});
  }
  void test_step(const levin::Batch& batch, int64_t batch_index) override {
    note_batch(batch_index);
    log("mean", batch["number"].to(torch::kDouble).mean());
  }
  void on_validation_epoch_end() override { log("epochs", 1.0); }
  std::vector<levin::DataLoader> val_dataloaders() override { return loaders; }
  std::optional<levin::DataLoader> train_dataloader() override { return numbers(4, 2); }
};

std::vector<levin::DataLoader> two() { return {numbers(4, 2, 100), numbers(3, 1, 200)}; }

TEST(SeveralLoaders, NamesAndMeansAreThoseOfEachLoader) {
  levin::Trainer trainer(bare());
  const auto module = std::make_shared<Several>();
  const levin::Metrics metrics = trainer.validate(module, two());
  EXPECT_THAT(metrics,
              UnorderedElementsAre(Pair("mean/dataloader_idx_0", 101.5),
                                   Pair("mean/dataloader_idx_1", 201.0),
                                   Pair("both_epoch/dataloader_idx_0", 101.5),
                                   Pair("both_epoch/dataloader_idx_1", 201.0),
                                   Pair("all", (4 * 101.5 + 3 * 201.0) / 7), Pair("epochs", 1.0)));
  EXPECT_THAT(module->batches,
              ElementsAre(Pair(0, 0), Pair(0, 1), Pair(1, 0), Pair(1, 1), Pair(1, 2)));
}

TEST(SeveralLoaders, OneOfAListHasNoNumber) {
  levin::Trainer trainer(bare());
  const levin::Metrics metrics =
      trainer.test(std::make_shared<Several>(), std::vector{numbers(4, 2, 100)});
  EXPECT_THAT(metrics, UnorderedElementsAre(Pair("mean", 101.5)));
}

TEST(SeveralLoaders, AreTestedToo) {
  levin::Trainer trainer(bare());
  EXPECT_THAT(trainer.test(std::make_shared<Several>(), two()),
              UnorderedElementsAre(Pair("mean/dataloader_idx_0", 101.5),
                                   Pair("mean/dataloader_idx_1", 201.0)));
}

TEST(SeveralLoaders, ALimitIsEachLoaders) {
  auto options = bare();
  options.limit_val_batches = 0.5;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Several>();
  trainer.validate(module, std::vector{numbers(4, 1, 100), numbers(8, 2, 200)});
  EXPECT_THAT(module->batches, ElementsAre(Pair(0, 0), Pair(0, 1), Pair(1, 0), Pair(1, 1)));
}

TEST(SeveralLoaders, TheSanityCheckReadsTheFirstBatchesOfEach) {
  auto options = bare();
  options.max_epochs = 0;
  options.num_sanity_val_steps = 1;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Several>();
  trainer.fit(module, numbers(4, 2), two());
  EXPECT_THAT(module->batches, ElementsAre(Pair(0, 0), Pair(1, 0)));
}

TEST(SeveralLoaders, OfAModuleAreValidatedInAFit) {
  auto options = bare();
  options.max_epochs = 1;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Several>();
  module->loaders = two();
  trainer.fit(module);
  const levin::Metrics metrics = trainer.callback_metrics();
  EXPECT_EQ(metrics.at("mean/dataloader_idx_0"), 101.5);
  EXPECT_EQ(metrics.at("mean/dataloader_idx_1"), 201.0);
  EXPECT_EQ(module->dataloader_index(), 0);
}

TEST(SeveralLoaders, ACheckpointRanksByOneOfThem) {
  Scratch scratch;
  auto options = bare();
  options.max_epochs = 1;
  options.default_root_dir = scratch.path().string();
  options.enable_checkpointing = true;
  const auto writer = levin::model_checkpoint({.monitor = "mean/dataloader_idx_1", .mode = "max"});
  options.callbacks = {writer};
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Several>(), numbers(4, 2), two());
  EXPECT_EQ(dynamic_cast<levin::ModelCheckpoint&>(*writer).best_model_score(), 201.0);
}

TEST(SeveralLoaders, NoneIsAnError) {
  levin::Trainer trainer(bare());
  EXPECT_THAT(error_of([&] {
                trainer.validate(std::make_shared<Several>(), std::vector<levin::DataLoader>());
              }),
              ::testing::HasSubstr("got no val_dataloader"));
}

}  // namespace several_loaders
