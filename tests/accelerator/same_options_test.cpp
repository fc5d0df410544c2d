// Ranks that were started with different options do not train together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/accelerator/accelerator.h"
#include "levin/optim/optim.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace same_options {
namespace {

using levin::AcceleratorOptions;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Case {
  std::string words;
  std::function<void(AcceleratorOptions&)> of_rank_1;
};

TEST(SameOptions, ARankWithOthersIsNamedOnEveryRank) {
  const std::vector<Case> cases{
      {"rank 1 has strategy = 'fsdp', but rank 0 has 'ddp'", [](auto& o) { o.strategy = "fsdp"; }},
      {"rank 1 has mixed_precision = 'bf16', but rank 0 has 'no'",
       [](auto& o) { o.mixed_precision = "bf16"; }},
      {"rank 1 has gradient_accumulation_steps = '2', but rank 0 has '1'",
       [](auto& o) { o.gradient_accumulation_steps = 2; }},
      {"rank 1 has ddp_gradient_reduction = 'sum', but rank 0 has 'mean'",
       [](auto& o) { o.engine.ddp.gradient_reduction = "sum"; }},
      {"rank 1 has compile = 'replay', but rank 0 has 'no'",
       [](auto& o) { o.engine.compile = "replay"; }}};
  for (const Case& c : cases) {
    const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
      AcceleratorOptions options{.strategy = "ddp"};
      if (rank == 1) c.of_rank_1(options);
      return error_of([&] { const levin::Accelerator accelerator(options); });
    });
    EXPECT_THAT(words, Each(HasSubstr("accelerator.options: " + c.words)));
  }
}

TEST(SameOptions, ARankWithAnotherOptimizerIsNamedOnEveryRank) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    return error_of([&] {
      levin::Accelerator accelerator({.strategy = "ddp"});
      accelerator.prepare(torch::nn::Linear(2, 2),
                          levin::optim::sgd({.lr = rank == 0 ? 0.1 : 0.2}));
    });
  });
  EXPECT_THAT(words, Each(AllOf(HasSubstr("accelerator.options: rank 1 has optimizer 0 = 'sgd"),
                                HasSubstr("lr 0.2"), HasSubstr("lr 0.1"))));
}

// Of one rank that is no mistake of ranks, but it would be of several.
TEST(SameOptions, SumsOfAGroupThatARecordedStepWouldSumAgainAreRefused) {
  AcceleratorOptions options{.strategy = "single"};
  options.engine.compile = "replay";
  options.engine.ddp.gradient_reduction = "sum";
  options.gradient_accumulation_plugin.sync_each_batch = true;
  EXPECT_THAT(error_of([&] { const levin::Accelerator accelerator(options); }),
              HasSubstr("strategy.ddp.options"));
}

TEST(SameOptions, AFolderOfItsOwnIsARanksAffair) {
  const auto words = run_world(2, [&](int64_t rank, const std::filesystem::path& folder) {
    AcceleratorOptions options{.strategy = "ddp"};
    options.project_dir = (folder / std::to_string(rank)).string();
    return error_of([&] { const levin::Accelerator accelerator(options); });
  });
  EXPECT_THAT(words, Each("no error"));
}

}  // namespace
}  // namespace same_options
