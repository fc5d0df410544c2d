// A module reaches its trainer, rank 0, print and the tensors of all ranks in a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/numbered_run.h"

namespace module_reach {

using namespace numbered_run;  // NOLINT
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;

struct Reaching : Seeing {
  at::Tensor gathered, validated_numbers;
  int64_t seen_epochs = 0;
  bool prints = false;

  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    gathered = all_gather(batch["number"].to(torch::kDouble).mean());
    seen_epochs = std::max(seen_epochs, trainer().current_epoch() + 1);
    if (prints && index == 0) print("epoch " + std::to_string(trainer().current_epoch()));
    return Seeing::training_step(batch, index);
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    validated_numbers = all_gather(batch["number"]);
  }
};

TEST(ModuleReach, TheTrainerAndOneRank) {
  auto options = bare();
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Reaching>();
  module->prints = true;
  ::testing::internal::CaptureStdout();
  trainer.fit(module, numbers(4, 2), numbers(3, 3, 10));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "epoch 0\nepoch 1\n");
  EXPECT_EQ(module->seen_epochs, 2);
  EXPECT_TRUE(module->gathered.equal(torch::tensor({2.5}, torch::kDouble)));
  EXPECT_TRUE(module->validated_numbers.equal(torch::tensor({{10, 11, 12}})));
}

TEST(ModuleReach, TheTensorsOfAllRanks) {
  const auto words = run_world(2, [](int64_t rank, const std::filesystem::path&) -> std::string {
    auto options = bare();
    options.strategy = "ddp";
    options.max_epochs = 1;
    levin::Trainer trainer(options);
    const auto module = std::make_shared<Reaching>();
    trainer.fit(module, numbers(4, 2), numbers(4, 2, 10));
    // Rank r reads the samples r, r + 2: their means are 1 and 2.
    if (!module->gathered.equal(torch::tensor({1.0, 2.0}, torch::kDouble))) return "training";
    if (!module->validated_numbers.equal(torch::tensor({{10, 12}, {11, 13}}))) return "validation";
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ModuleReach, NothingOutsideOfARun) {
  Reaching module;
  EXPECT_THAT(error_of([&] { module.trainer(); }), HasSubstr("module.context"));
  EXPECT_THAT(error_of([&] { module.print("x"); }), HasSubstr("module.context"));
  EXPECT_THAT(error_of([&] { module.all_gather(torch::ones(1)); }), HasSubstr("module.context"));
}

TEST(ModuleReach, AStepThatGathersIsNotReplayed) {
  auto options = bare();
  options.engine.compile = "replay";
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Reaching>();
  trainer.fit(module, numbers(16, 2));
  EXPECT_EQ(trainer.compile_report().replayed, 0);
  EXPECT_THAT(trainer.compile_report().refusals, Each(HasSubstr("calls all_gather()")));
}

}  // namespace module_reach
