// accumulate_grad_batches_by_epoch: windows of other sizes from some epochs on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/run/limits.h"
#include "tests/support/error_of.h"
#include "tests/trainer/numbered_run.h"

namespace accumulation_by_epoch {

using namespace numbered_run;  // NOLINT
using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Keeps after how many batches the optimizer stepped.
struct Stepped : Seeing {
  std::vector<size_t> after;
  void on_before_optimizer_step(levin::OptimizerHandle&) override {
    after.push_back(trained.size());
  }
};

levin::TrainerOptions four_epochs() {
  auto options = bare();
  options.max_epochs = 4;
  options.accumulate_grad_batches_by_epoch = {{1, 2}, {3, 5}};
  return options;
}

TEST(AccumulationByEpoch, WindowsChangeWithTheEpoch) {
  levin::Trainer trainer(four_epochs());
  const auto module = std::make_shared<Stepped>();
  trainer.fit(module, numbers(3, 1));
  // One step a batch in epoch 0, windows of 2 and 1 in epochs 1 and 2, of 3 in the last.
  EXPECT_THAT(module->after, ElementsAre(1u, 2u, 3u, 5u, 6u, 8u, 9u, 12u));
}

TEST(AccumulationByEpoch, WeightsAreThoseOfOneLargeBatch) {
  auto options = four_epochs();
  options.max_epochs = 2;
  options.accumulate_grad_batches_by_epoch = {{0, 4}};
  const auto small = std::make_shared<Seeing>();
  levin::Trainer(options).fit(small, numbers(8, 1));
  options.accumulate_grad_batches_by_epoch = {};
  const auto large = std::make_shared<Seeing>();
  levin::Trainer(options).fit(large, numbers(8, 4));
  EXPECT_TRUE(torch::allclose(small->layer->weight, large->layer->weight, 1e-6, 1e-7));
}

TEST(AccumulationByEpoch, AResumedRunHasTheWindowsOfItsEpoch) {
  Scratch scratch;
  auto options = four_epochs();
  options.enable_checkpointing = true;
  options.callbacks = {levin::model_checkpoint({.dirpath = (scratch.path() / "runs").string()})};
  options.max_epochs = 2;
  levin::Trainer(options).fit(std::make_shared<Stepped>(), numbers(3, 1));
  options.max_epochs = 4;
  const auto module = std::make_shared<Stepped>();
  levin::Trainer(options).fit(module, numbers(3, 1), std::nullopt,
                              {.ckpt_path = (scratch.path() / "runs" / "last").string()});
  EXPECT_THAT(module->after, ElementsAre(2u, 3u, 6u));
}

TEST(AccumulationByEpoch, TheStepsAndEpochsOfARunAreCounted) {
  levin::TrainerOptions options = four_epochs();
  auto limits = levin::detail::resolve_limits(options, 3, 0);
  EXPECT_EQ(limits.total_steps(), 3 + 2 + 2 + 1);
  options.max_epochs = -1;
  options.max_steps = 6;  // ends in the third epoch
  limits = levin::detail::resolve_limits(options, 3, 0);
  EXPECT_EQ(limits.total_epochs(), 3);
  options.max_steps = 7;
  EXPECT_EQ(levin::detail::resolve_limits(options, 3, 0).total_epochs(), 3);
  options.max_steps = 8;
  EXPECT_EQ(levin::detail::resolve_limits(options, 3, 0).total_epochs(), 4);
}

TEST(AccumulationByEpoch, IsReadFromTextAndRefusedWhereItIsWrong) {
  levin::TrainerOptions options;
  levin::from_text("0:8,4:1", options.accumulate_grad_batches_by_epoch);
  EXPECT_EQ(to_text(options.accumulate_grad_batches_by_epoch), "0:8,4:1");
  EXPECT_EQ(to_text(levin::EpochCounts()), "none");
  EXPECT_THAT(error_of([&] { levin::from_text("8", options.accumulate_grad_batches_by_epoch); }),
              HasSubstr("base.text: got '8', wanted epochs with counts"));
  EXPECT_THAT(
      error_of([&] { levin::from_text("1:8,1:2", options.accumulate_grad_batches_by_epoch); }),
      HasSubstr("which has epoch 1 twice"));
  auto wrong = bare();
  wrong.accumulate_grad_batches_by_epoch = {{0, 0}};
  EXPECT_THAT(error_of([&] { levin::Trainer trainer(wrong); }), HasSubstr("counts of at least 1"));
  wrong.accumulate_grad_batches_by_epoch = {{0, 2}};
  wrong.accumulate_grad_batches = 2;
  EXPECT_THAT(error_of([&] { levin::Trainer trainer(wrong); }), HasSubstr("set one of them"));
}

}  // namespace accumulation_by_epoch
