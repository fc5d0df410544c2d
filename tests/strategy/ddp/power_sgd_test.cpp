#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/error.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "tests/support/world.h"

namespace {

using levin::test::run_world;
using ::testing::Each;

/// Gradients of one backward on each rank: of a matrix that is the product of two thin ones (rank 2
/// over both ranks), of a matrix too small to shrink, and of a vector.
struct ThreeParametersImpl : torch::nn::Module {
  at::Tensor large, small, vector;
  ThreeParametersImpl() {
    torch::manual_seed(1);
    large = register_parameter("large", torch::randn({20, 30}));
    small = register_parameter("small", torch::randn({2, 2}));
    vector = register_parameter("vector", torch::randn({5}));
  }
};
TORCH_MODULE(ThreeParameters);

at::Tensor thin_gradient(int64_t rank) {
  return torch::outer(torch::arange(20) + rank, torch::arange(30) * 0.1 - rank).to(at::kFloat);
}

void step(levin::Strategy& strategy, ThreeParameters& net, int64_t rank) {
  net->zero_grad();
  const double factor = static_cast<double>(rank + 1);
  strategy.backward((net->large * thin_gradient(rank)).sum() +
                        ((net->small * net->small).sum() + net->vector.sum()) * factor,
                    true);
}

std::string wrong(const char* what, const at::Tensor& got, const at::Tensor& wanted) {
  const bool same = at::allclose(got, wanted, 1e-4, 1e-3);
  return same ? "" : c10::str(what, ": got ", got, ", wanted ", wanted);
}

TEST(PowerSgd, AMeanOfLowRankComesOutWhole) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          const auto strategy =
                              levin::make_strategy("ddp", {.group = levin::test::connect(),
                                                           .ddp = {.comm_hook = "power_sgd",
                                                                   .power_sgd_rank = 2,
                                                                   .power_sgd_start_step = 0}});
                          ThreeParameters net;
                          strategy->setup(*net, at::kCPU);
                          const at::Tensor mean = (thin_gradient(0) + thin_gradient(1)) / 2;
                          std::string words;
                          // The first step finds the space of the gradient, those after it stay
                          // there.
                          for (int64_t i = 0; i < 3; ++i) step(*strategy, net, rank);
                          words += wrong("small", net->small.grad(), net->small.detach() * 3);
                          words += wrong("vector", net->vector.grad(), torch::full({5}, 1.5));
                          return words + wrong("large", net->large.grad(), mean);
                        }),
              Each(""));
}

TEST(PowerSgd, WhatIsLostComesWithTheNextGradients) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          const auto strategy =
                              levin::make_strategy("ddp", {.group = levin::test::connect(),
                                                           .ddp = {.comm_hook = "power_sgd",
                                                                   .power_sgd_rank = 1,
                                                                   .power_sgd_start_step = 0}});
                          ThreeParameters net;
                          strategy->setup(*net, at::kCPU);
                          at::Tensor total = torch::zeros({20, 30});
                          constexpr int64_t kTimes = 40;
                          for (int64_t i = 0; i < kTimes; ++i) {
                            step(*strategy, net, rank);
                            total += net->large.grad();
                          }
                          // One column cannot hold a mean of rank two: only the sum over steps can.
                          const at::Tensor mean = (thin_gradient(0) + thin_gradient(1)) / 2;
                          const double off =
                              ((total / kTimes - mean).norm() / mean.norm()).item<double>();
                          return off < 0.05 ? std::string() : "off by " + std::to_string(off);
                        }),
              Each(""));
}

TEST(PowerSgd, BeforeItsStartGradientsGoWhole) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          const auto strategy = levin::make_strategy(
                              "ddp",
                              {.group = levin::test::connect(),
                               .ddp = {.comm_hook = "power_sgd", .power_sgd_start_step = 2}});
                          ThreeParameters net;
                          strategy->setup(*net, at::kCPU);
                          const at::Tensor mean = (thin_gradient(0) + thin_gradient(1)) / 2;
                          step(*strategy, net, rank);
                          std::string words = wrong("first", net->large.grad(), mean);
                          step(*strategy, net, rank);
                          words += wrong("second", net->large.grad(), mean);
                          step(*strategy, net, rank);
                          const bool thin = !at::allclose(net->large.grad(), mean, 1e-4, 1e-3);
                          return words + (thin ? "" : "the third went whole");
                        }),
              Each(""));
}

TEST(LocalSgd, RanksStepAloneAndAreAveragedInTurns) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          const auto strategy = levin::make_strategy(
                              "ddp", {.group = levin::test::connect(),
                                      .ddp = {.local_sgd_start_step = 1, .local_sgd_period = 2}});
                          torch::nn::Sequential net(torch::nn::Linear(1, 1));
                          strategy->setup(*net, at::kCPU);
                          {
                            const at::NoGradGuard no_grad;
                            for (auto& parameter : net->parameters()) parameter.zero_();
                          }
                          const auto weight = net->parameters()[0];
                          const auto optimizer = strategy->build_optimizer(
                              levin::optim::sgd({.lr = 1}), levin::named_parameters(*net));
                          std::string words;
                          // The gradient is -1 on rank 0 and -3 on rank 1.
                          for (const double wanted :
                               {2.0, rank == 0 ? 3.0 : 5.0, 6.0, rank == 0 ? 7.0 : 9.0, 10.0}) {
                            optimizer->zero_grad();
                            strategy->backward(-(1.0 + 2.0 * static_cast<double>(rank)) *
                                                   net->forward(torch::ones({1, 1})).sum(),
                                               true);
                            optimizer->step();
                            strategy->after_step();
                            words += wrong("weight", weight.detach(), torch::full({1, 1}, wanted));
                          }
                          strategy->settle();
                          return words +
                                 wrong("settled", weight.detach(), torch::full({1, 1}, 10.0));
                        }),
              Each(""));
}

}  // namespace
