// Activation checkpoints on xla:0: the gradients of the CPU, and no other random numbers in backward.
#include <gmock/gmock.h>

#include "levin/base/error.h"
#include "levin/module/activation_checkpoint.h"
#include "tests/xla/on_both_devices.h"

namespace {

using namespace levin::test;  // NOLINT
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(CheckpointedOnXla, GivesTheGradientsOfTheCpu) {
  expect_same_on_both({.name = "checkpointed",
                       .inputs =
                           [] {
                             return OperatorTensors{torch::randn({5, 4}, at::kDouble),
                                                    torch::randn({3, 4}, at::kDouble)};
                           },
                       .function =
                           [](const OperatorTensors& t) {
                             const auto block = [w = t[1]](const at::Tensor& x) {
                               return at::dropout(at::linear(x, w).tanh(), 0.5, /*train=*/false);
                             };
                             return OperatorTensors{
                                 levin::activation_checkpoint(block, t[0]).square().sum()};
                           },
                       .dtypes = kWide.first(1),
                       .with_gradients = true});
}

TEST(CheckpointedOnXla, ABlockThatDrawsIsAnError) {
  const at::Tensor x = torch::ones({8, 8}).to(xla_runtime().device()).requires_grad_();
  for (const auto& draw : std::vector<std::function<at::Tensor(const at::Tensor&)>>{
           [](const at::Tensor& in) { return at::dropout(in * 3, 0.5, /*train=*/true); },
           [](const at::Tensor& in) { return in * torch::rand_like(in); },
           [](const at::Tensor& in) { return at::rrelu(in, 0.1, 0.3, /*training=*/true); }}) {
    EXPECT_THAT([&] { levin::activation_checkpoint(draw, x); },
                ThrowsMessage<levin::Error>(HasSubstr("module.checkpoint.random")));
  }
}

}  // namespace
