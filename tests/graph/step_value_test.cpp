// Numbers that the host computes in each step, under replay.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/graph/compile/compiled.h"
#include "levin/graph/replay/replay.h"

namespace step_value {

using levin::StepValue;
using levin::graph::Compiled;
using Results = std::vector<at::Tensor>;

TEST(StepValue, OfAReplayIsThatOfItsStep) {
  int64_t step = 0;
  const StepValue weight([&] { return 0.5 * static_cast<double>(step); });
  Compiled compiled("it");
  for (step = 0; step < 20; ++step) {
    const at::Tensor x = torch::ones({2});
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * weight() + weight()}; });
    EXPECT_EQ(results[0][1].item<double>(), static_cast<double>(step)) << step;
  }
  EXPECT_TRUE(compiled.report().refusals.empty());
  EXPECT_GT(compiled.report().replayed, 10);
}

TEST(StepValue, IsOfTheDtypeThatItIsGiven) {
  EXPECT_EQ(StepValue([] { return 1.5; })().scalar_type(), at::kFloat);
  const StepValue precise([] { return 0.1; }, at::kDouble);
  EXPECT_EQ(precise().item<double>(), 0.1);
  EXPECT_EQ(StepValue([] { return 1.5; }, at::kBFloat16)().item<double>(), 1.5);
}

TEST(StepValue, MayAskForNumbersThatAreOtherwiseConditions) {
  int64_t step = 0;
  Compiled compiled("it");
  const auto global_step = [&] {
    if (auto* recording = compiled.recording()) {
      recording->depends_on("the step", [&] { return step; });
    }
    return static_cast<double>(step);
  };
  const StepValue weight(global_step);
  for (step = 0; step < 20; ++step) {
    const at::Tensor x = torch::ones({2});
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * weight()}; });
    EXPECT_EQ(results[0][1].item<double>(), static_cast<double>(step)) << step;
  }
  EXPECT_TRUE(compiled.report().refusals.empty());
  EXPECT_GT(compiled.report().replayed, 10);
}

}  // namespace step_value
