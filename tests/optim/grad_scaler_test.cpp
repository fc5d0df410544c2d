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
  for (const levin::optim::GradScalerOptions& options :
       std::vector<levin::optim::GradScalerOptions>{{.static_scale = -1.0},
                                                    {.static_scale = kInf},
                                                    {.hysteresis = 0},
                                                    {.min_scale = -1.0},
                                                    {.init_scale = 8.0, .min_scale = 16.0}}) {
    EXPECT_THAT(error_of([&] { GradScaler scaler(options); }),
                StartsWith("optim.scaler.options: got static_scale = "));
  }
}

/// The scales after steps that overflowed (1) or did not (0); "min" for the error at the smallest one.
std::vector<std::string> scales(GradScaler& scaler, const std::string& overflows) {
  std::vector<std::string> all;
  OneParameter one;
  for (const char overflow : overflows) {
    one.weight.mutable_grad() = torch::full({2}, overflow == '1' ? kInf : 0.0);
    scaler.step(*one.optimizer);
    const std::string said = error_of([&] { scaler.update(); });
    if (said.starts_with("optim.scaler.min_scale: the gradients overflowed at the smallest")) {
      all.emplace_back("min");
      break;
    }
    all.push_back(levin::to_text(scaler.get_scale()));
  }
  return all;
}

using Texts = std::vector<std::string>;

// The numbers are those of DeepSpeed 0.19.6's DynamicLossScaler, run over these sequences with
// init_scale = 256. Its scale grows one step later: growth_interval is its scale_window + 1.
TEST(GradScaler, ShrinksAtTheOverflowOfTheHysteresisAsDeepSpeedDoes) {
  struct Case {
    levin::optim::GradScalerOptions options;
    std::string overflows;
    Texts wanted;
  };
  const std::vector<Case> cases = {
      {{}, "110110", {"128", "64", "64", "32", "16", "16"}},
      {{.hysteresis = 2}, "1101011", {"256", "128", "128", "64", "64", "32", "16"}},
      {{.hysteresis = 3},
       "110111011110",
       {"256", "256", "256", "128", "64", "32", "32", "16", "8", "4", "2", "2"}},
      {{.hysteresis = 3, .consecutive_hysteresis = true},
       "110111011110",
       {"256", "256", "256", "256", "256", "128", "128", "128", "128", "64", "32", "32"}},
      {{.min_scale = 64}, "11111", {"128", "64", "min"}},
      {{.min_scale = 100}, "1111", {"128", "100", "min"}},
      {{.growth_interval = 3, .hysteresis = 2},
       "1100011000011",
       {"256", "128", "128", "128", "256", "256", "128", "128", "128", "256", "256", "256", "128"}},
      {{.growth_interval = 3, .hysteresis = 2, .consecutive_hysteresis = true},
       "11000101000011",
       {"256", "128", "128", "128", "256", "256", "256", "256", "256", "256", "512", "512", "512",
        "256"}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    levin::optim::GradScalerOptions options = cases[i].options;
    options.init_scale = 256;
    GradScaler scaler(options);
    EXPECT_EQ(scales(scaler, cases[i].overflows), cases[i].wanted) << "case " << i;
    // The same after a resume at each place.
    for (size_t at = 1; at < cases[i].wanted.size() - 1; ++at) {
      GradScaler first(options), second(options);
      scales(first, cases[i].overflows.substr(0, at));
      second.load_state_dict(first.state_dict());
      EXPECT_EQ(
          scales(second, cases[i].overflows.substr(at)),
          Texts(cases[i].wanted.begin() + static_cast<std::ptrdiff_t>(at), cases[i].wanted.end()))
          << "case " << i << " at " << at;
    }
  }
}

TEST(GradScaler, AStaticScaleStaysTheSameAndOverflowsAreSkipped) {
  GradScaler scaler({.growth_interval = 1, .static_scale = 128});
  EXPECT_EQ(scaler.get_scale(), 128.0);
  OneParameter one;
  one.backward(scaler, 0.25);
  EXPECT_TRUE(torch::equal(one.weight.grad(), torch::full({2}, 32.0)));
  EXPECT_TRUE(scaler.step(*one.optimizer));
  scaler.update();
  EXPECT_TRUE(torch::equal(one.weight, torch::full({2}, 0.75)));
  one.backward(scaler, kInf);
  EXPECT_FALSE(scaler.step(*one.optimizer));
  scaler.update();
  EXPECT_TRUE(torch::equal(one.weight, torch::full({2}, 0.75)));
  EXPECT_EQ(scales(scaler, "10011"), Texts(5, "128"));
  GradScaler dynamic({.init_scale = 8});
  scaler.load_state_dict(dynamic.state_dict());
  EXPECT_EQ(scaler.get_scale(), 128.0);
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
      optimizer->groups()[0].lr = lr * std::ldexp(1.0, -static_cast<int>(taken) / 8);
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
