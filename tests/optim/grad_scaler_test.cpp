#include "levin/optim/grad_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "levin/base/autocast.h"
#include "levin/optim/optim.h"
#include "tests/optim/golden.h"
#include "tests/support/error_of.h"

namespace {

using levin::optim::GradScaler;
using levin::test::error_of;
using ::testing::StartsWith;

const double kInf = std::numeric_limits<double>::infinity();

/// One parameter of ones, and an optimizer that subtracts its gradient.
struct OneParameter {
  at::Tensor weight = torch::ones({2}).requires_grad_();
  std::unique_ptr<levin::optim::Optimizer> optimizer =
      levin::optim::build_optimizer(levin::optim::sgd({.lr = 1.0}), {{"weight", weight}});

  void backward(const GradScaler& scaler, double factor = 1.0) {
    optimizer->zero_grad();
    scaler.scale((weight * factor).sum()).backward();
  }
};

TEST(GradScaler, ScalesTheLossAndNotTheStep) {
  GradScaler scaler({.init_scale = 8.0});
  OneParameter one;
  one.backward(scaler, 0.25);
  EXPECT_TRUE(torch::equal(one.weight.grad(), torch::full({2}, 2.0)));
  EXPECT_TRUE(scaler.step(*one.optimizer));
  EXPECT_TRUE(torch::equal(one.weight, torch::full({2}, 0.75)));
}

TEST(GradScaler, AHalfLossIsScaledInFloat32) {
  const at::Tensor scaled = GradScaler().scale(torch::full({}, 60000.0, at::kHalf));
  EXPECT_EQ(scaled.scalar_type(), at::kFloat);
  EXPECT_EQ(scaled.item<double>(), 60000.0 * 65536.0);
}

TEST(GradScaler, UnscalesOnceAStep) {
  GradScaler scaler({.init_scale = 8.0});
  OneParameter one;
  one.backward(scaler);
  scaler.unscale(*one.optimizer);
  EXPECT_TRUE(torch::equal(one.weight.grad(), torch::ones({2})));
  EXPECT_THAT(error_of([&] { scaler.unscale(*one.optimizer); }),
              StartsWith("optim.scaler.twice: the gradients of sgd were already unscaled"));
  EXPECT_TRUE(scaler.step(*one.optimizer));
  EXPECT_TRUE(torch::equal(one.weight, torch::zeros({2})));
  EXPECT_THAT(error_of([&] { scaler.step(*one.optimizer); }),
              StartsWith("optim.scaler.twice: the gradients of sgd were already used in a step"));
}

TEST(GradScaler, LeavesOutAStepThatOverflowedAndBacksOff) {
  for (const double bad : {kInf, -kInf, std::numeric_limits<double>::quiet_NaN()}) {
    GradScaler scaler({.init_scale = 8.0});
    OneParameter one;
    one.backward(scaler, bad);
    EXPECT_FALSE(scaler.step(*one.optimizer));
    EXPECT_TRUE(torch::equal(one.weight, torch::ones({2})));
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 4.0);
  }
}

TEST(GradScaler, GrowsAfterSoManyStepsWithoutOverflow) {
  GradScaler scaler({.init_scale = 8.0, .growth_factor = 4.0, .growth_interval = 3});
  OneParameter one;
  std::vector<double> scales;
  for (const double factor : {1.0, 1.0, kInf, 1.0, 1.0, 1.0, 1.0}) {
    one.backward(scaler, factor);
    scaler.step(*one.optimizer);
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 4, 4, 4, 16, 16}));
}

TEST(GradScaler, DoesNotGrowToInfinity) {
  const double largest = std::numeric_limits<float>::max();
  GradScaler scaler({.init_scale = largest, .growth_interval = 1});
  OneParameter one;
  one.backward(scaler, 0.0);
  scaler.step(*one.optimizer);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), largest);
}

TEST(GradScaler, OneUpdateIsForAllOptimizers) {
  GradScaler scaler({.init_scale = 8.0, .growth_interval = 1});
  OneParameter good, bad;
  good.backward(scaler);
  bad.backward(scaler, kInf);
  EXPECT_TRUE(scaler.step(*good.optimizer));
  EXPECT_FALSE(scaler.step(*bad.optimizer));
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_THAT(error_of([&] { scaler.update(); }),
              StartsWith("optim.scaler.update: no optimizer was stepped"));
}

TEST(GradScaler, AnotherRanksOverflowCounts) {
  GradScaler scaler({.init_scale = 8.0}, [](bool) { return true; });
  OneParameter one;
  one.backward(scaler);
  EXPECT_FALSE(scaler.step(*one.optimizer));
}

TEST(GradScaler, LooksAtSparseGradientsAndUnscalesThem) {
  GradScaler scaler({.init_scale = 8.0});
  const at::Tensor table = torch::ones({4, 2}).requires_grad_();
  const auto optimizer = levin::optim::build_optimizer(
      levin::optim::torch_optimizer<torch::optim::SGD>(torch::optim::SGDOptions(1.0)),
      {{"table", table}});
  scaler.scale(torch::embedding(table, torch::tensor({1, 1, 3}), -1, false, /*sparse=*/true).sum())
      .backward();
  ASSERT_TRUE(table.grad().is_sparse());
  scaler.unscale(*optimizer);
  EXPECT_TRUE(torch::equal(table.grad().to_dense(),
                           torch::tensor({{0., 0.}, {2., 2.}, {0., 0.}, {1., 1.}}).to(at::kFloat)));
}

TEST(GradScaler, GradientsInFloat16AreAnError) {
  GradScaler scaler;
  const at::Tensor half = torch::ones({2}, at::kHalf).requires_grad_();
  const auto optimizer =
      levin::optim::build_optimizer(levin::optim::sgd({.lr = 1.0}), {{"half", half}});
  half.sum().backward();
  EXPECT_THAT(error_of([&] { scaler.step(*optimizer); }),
              StartsWith("optim.scaler.half: the gradient of half is in float16, wanted float32"));
}

TEST(GradScaler, RefusesOptionsThatDoNotScale) {
  for (const levin::optim::GradScalerOptions& options :
       std::vector<levin::optim::GradScalerOptions>{{.init_scale = 0.0},
                                                    {.growth_factor = 1.0},
                                                    {.backoff_factor = 1.0},
                                                    {.growth_interval = 0}}) {
    EXPECT_THAT(error_of([&] { GradScaler scaler(options); }),
                StartsWith("optim.scaler.options: got init_scale = "));
  }
}

TEST(GradScaler, GoesOnFromItsState) {
  GradScaler first({.init_scale = 8.0, .growth_interval = 3}), second;
  OneParameter one;
  for (int step = 0; step < 2; ++step) {
    one.backward(first);
    first.step(*one.optimizer);
    first.update();
  }
  const levin::State state = first.state_dict();
  EXPECT_EQ(state.number("scale"), 8.0);
  EXPECT_EQ(state.integer("_growth_tracker"), 2);
  second.load_state_dict(state);
  one.backward(second);
  second.step(*one.optimizer);
  second.update();
  EXPECT_EQ(second.get_scale(), 16.0);
}

// PyTorch's autocast and GradScaler, step for step; half types round differently from machine to
// machine.
TEST(GradScalerOracle, StepsAsPyTorchDoes) {
  const nlohmann::json facts = golden::facts("amp");
  const levin::State tensors = golden::tensors("amp");
  const auto overflows = facts["overflows"].get<std::vector<int64_t>>();
  for (const auto& [name, one] : facts["cases"].items()) {
    torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::ReLU(),
                              torch::nn::Linear(16, 3));
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->named_parameters()) {
        parameter.value().copy_(tensors.tensor("initial." + parameter.key()));
      }
    }
    const double lr = one["lr"];
    const auto config = one["optimizer"] == "SGD"
                            ? levin::OptimizerConfig(levin::optim::sgd({.lr = lr}))
                            : levin::OptimizerConfig(levin::optim::adamw({.lr = lr}));
    const auto optimizer = levin::optim::build_optimizer(config, levin::named_parameters(*net));
    const bool scaled = one["scaled"];
    GradScaler scaler({.init_scale = facts["scaler"]["init_scale"],
                       .growth_factor = facts["scaler"]["growth_factor"],
                       .backoff_factor = facts["scaler"]["backoff_factor"],
                       .growth_interval = facts["scaler"]["growth_interval"]});
    const levin::Autocast autocast = {
        .enabled = true, .dtype = one["dtype"] == "float16" ? at::kHalf : at::kBFloat16};
    int64_t taken = 0;
    for (int64_t step = 0; step < tensors.tensor("inputs").size(0); ++step) {
      optimizer->zero_grad();
      at::Tensor loss = [&] {
        const levin::AutocastScope scope(at::kCPU, autocast);
        return torch::nn::functional::cross_entropy(
            net->forward(tensors.tensor("inputs")[step]).to(at::kFloat),
            tensors.tensor("labels")[step]);
      }();
      EXPECT_NEAR(loss.item<double>(), one["losses"][step], 2e-2) << name << " step " << step;
      if (!scaled) {
        loss.backward();
        optimizer->step();
        ++taken;
      } else {
        if (std::ranges::count(overflows, step) > 0) loss = loss * kInf;
        scaler.scale(loss).backward();
        if (one["clipped"]) {
          scaler.unscale(*optimizer);
          levin::optim::clip_grad_norm(optimizer->parameters(), facts["max_norm"]);
        }
        if (scaler.step(*optimizer)) ++taken;
        scaler.update();
        EXPECT_EQ(scaler.get_scale(), one["scales"][step].get<double>())
            << name << " step " << step;
      }
      optimizer->groups()[0].lr = lr * std::pow(0.5, static_cast<double>(taken / 8));
      EXPECT_NEAR(optimizer->groups()[0].lr, one["rates"][step], 1e-12) << name << " step " << step;
    }
    for (const auto& parameter : net->named_parameters()) {
      EXPECT_TRUE(torch::allclose(parameter.value(), tensors.tensor(name + "." + parameter.key()),
                                  2e-2, 2e-2))
          << name << " " << parameter.key();
    }
  }
}

}  // namespace
