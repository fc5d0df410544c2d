// When a fit validates: across epochs, after a time; overfit_batches; loaders that are reloaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/run/limits.h"
#include "tests/support/error_of.h"
#include "tests/trainer/numbered_run.h"

namespace validation_interval {

using namespace numbered_run;  // NOLINT
using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Keeps after how many training batches it validated.
struct Validated : Seeing {
  std::vector<size_t> after;
  void on_validation_start() override { after.push_back(trained.size()); }
};

levin::TrainerOptions three_epochs() {
  auto options = bare();
  options.max_epochs = 3;
  return options;
}

/// Trains three epochs of five batches of one sample.
std::vector<size_t> validated_after(levin::TrainerOptions options) {
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Validated>();
  trainer.fit(module, numbers(5, 1), numbers(1, 1));
  return module->after;
}

TEST(ValidationInterval, CountsAcrossEpochs) {
  auto options = three_epochs();
  options.check_val_every_n_epoch = std::nullopt;
  options.val_check_interval = 7;
  EXPECT_THAT(validated_after(options), ElementsAre(7u, 14u));
  options.val_check_interval = 2;
  EXPECT_THAT(validated_after(options), ElementsAre(2u, 4u, 6u, 8u, 10u, 12u, 14u));
  options.val_check_interval = 100;
  EXPECT_THAT(validated_after(options), IsEmpty());
  // A window that ends after an interval validates at its end.
  options.val_check_interval = 3;
  options.accumulate_grad_batches = 2;
  EXPECT_THAT(validated_after(options), ElementsAre(4u, 7u, 9u, 12u, 15u));
}

TEST(ValidationInterval, AResumedRunCountsOn) {
  Scratch scratch;
  auto options = three_epochs();
  options.default_root_dir = scratch.path().string();
  options.enable_checkpointing = true;
  options.check_val_every_n_epoch = std::nullopt;
  options.val_check_interval = 4;
  options.callbacks = {levin::model_checkpoint({.dirpath = (scratch.path() / "runs").string()})};
  options.max_steps = 6;
  {
    levin::Trainer trainer(options);
    const auto module = std::make_shared<Validated>();
    trainer.fit(module, numbers(5, 1), numbers(1, 1));
    EXPECT_THAT(module->after, ElementsAre(4u));
  }
  options.max_steps = -1;
  options.callbacks = {};
  options.enable_checkpointing = false;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Validated>();
  trainer.fit(module, numbers(5, 1), numbers(1, 1),
              {.ckpt_path = (scratch.path() / "runs/last").string()});
  EXPECT_THAT(module->after, ElementsAre(2u, 6u));  // after 8 and 12 batches of both runs
}

TEST(ValidationInterval, IsATime) {
  auto options = three_epochs();
  options.val_check_interval = "00:00:00:00";  // it has always passed
  EXPECT_THAT(validated_after(options),
              ElementsAre(1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 15u));
  options.check_val_every_n_epoch = 2;
  EXPECT_THAT(validated_after(options), ElementsAre(6u, 7u, 8u, 9u, 10u));
  options.check_val_every_n_epoch = std::nullopt;
  options.val_check_interval = "99:00:00:00";
  EXPECT_THAT(validated_after(options), IsEmpty());
}

TEST(ValidationInterval, IsReadFromText) {
  levin::TrainerOptions options;
  levin::from_text("00:00:10:00", options.val_check_interval);
  EXPECT_EQ(options.val_check_interval.seconds(), 600.0);
  EXPECT_EQ(to_text(options.val_check_interval), "00:00:10:00");
  levin::from_text("0.25", options.val_check_interval);
  EXPECT_EQ(options.val_check_interval.seconds(), std::nullopt);
  EXPECT_EQ(options.val_check_interval.of(100), 25);
  EXPECT_THAT(error_of([&] { levin::from_text("1:x", options.val_check_interval); }),
              HasSubstr("got val_check_interval = '1:x', wanted DD:HH:MM:SS"));
}

TEST(ValidationInterval, AcrossEpochsNeedsACount) {
  auto options = three_epochs();
  options.check_val_every_n_epoch = std::nullopt;
  EXPECT_THAT(error_of([&] { levin::Trainer trainer(options); }),
              HasSubstr("set val_check_interval to a number of batches or to a time"));
}

TEST(OverfitBatches, AreTheFirstOfTheDatasetInItsOrder) {
  auto options = bare();
  options.overfit_batches = 2;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Seeing>();
  const auto shuffled = [](int64_t from) {
    return levin::DataLoader(numbers(9, 1, from).dataset(), {.batch_size = 2, .shuffle = true});
  };
  trainer.fit(module, shuffled(0), shuffled(100));
  EXPECT_THAT(module->trained, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(module->validated, ElementsAre(100, 101, 102, 103, 100, 101, 102, 103));
}

TEST(OverfitBatches, MayBeAFractionAndExcludeLimits) {
  auto options = bare();
  options.max_epochs = 1;
  options.overfit_batches = 0.5;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Seeing>();
  trainer.fit(module, numbers(8, 2), numbers(4, 1, 100));
  EXPECT_THAT(module->trained, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(module->validated, ElementsAre(100, 101));
  options.limit_val_batches = 1;
  EXPECT_THAT(error_of([&] { levin::Trainer other(options); }),
              HasSubstr("set only overfit_batches"));
}

/// Gives other data each time that it is asked.
struct Changing : levin::DataModule {
  int64_t asked = 0;
  std::optional<levin::DataLoader> train_dataloader() override {
    return numbers(2, 1, 10 * asked++);
  }
  std::optional<levin::DataLoader> val_dataloader() override { return numbers(1, 1, 10 * asked); }
};

TEST(ReloadedLoaders, AreAskedForEveryNEpochs) {
  auto options = bare();
  options.max_epochs = 5;
  options.reload_dataloaders_every_n_epochs = 2;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Seeing>();
  trainer.fit(module, std::make_shared<Changing>());
  EXPECT_THAT(module->trained, ElementsAre(0, 1, 0, 1, 10, 11, 10, 11, 20, 21));
  EXPECT_THAT(module->validated, ElementsAre(10, 10, 20, 20, 30));
}

TEST(ReloadedLoaders, ARunIsResumedAfterAReload) {
  Scratch scratch;
  const auto run = [&](int64_t max_steps, const std::string& ckpt_path) {
    auto options = bare();
    options.max_epochs = 3;
    options.max_steps = max_steps;
    options.reload_dataloaders_every_n_epochs = 1;
    options.enable_checkpointing = true;
    options.callbacks = {levin::model_checkpoint({.dirpath = (scratch.path() / "runs").string()})};
    levin::Trainer trainer(options);
    const auto module = std::make_shared<Seeing>();
    trainer.fit(module, std::make_shared<Changing>(), {.ckpt_path = ckpt_path});
    return module->trained;
  };
  EXPECT_THAT(run(3, ""), ElementsAre(0, 1, 10));  // within the second epoch
  // The data module is a new one, which counts its calls from 0 again.
  EXPECT_THAT(run(-1, (scratch.path() / "runs" / "last").string()), ElementsAre(1, 10, 11));
}

TEST(ReloadedLoaders, OfACallerStay) {
  auto options = bare();
  options.reload_dataloaders_every_n_epochs = 1;
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Seeing>();
  trainer.fit(module, numbers(2, 1));
  EXPECT_THAT(module->trained, ElementsAre(0, 1, 0, 1));
}

}  // namespace validation_interval
