// Training steps whole: forward, loss, backward, the update; traced at each step, because what an
// optimizer computes on the host changes from one to the next.
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/backward.h"
#include "tests/graph/against_eager.h"

namespace {

using at::Tensor;
using levin::test::Tensors;
namespace optim = levin::optim;

struct OptimizerCase {
  std::string name;
  levin::OptimizerConfig config;
};

std::vector<OptimizerCase> optimizer_cases() {
  using torch::optim::RMSprop;
  using torch::optim::RMSpropOptions;
  return {
      {"sgd", optim::sgd({.lr = 0.1})},
      {"sgd_momentum", optim::sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1})},
      {"sgd_nesterov",
       optim::sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true, .maximize = true})},
      {"adam", optim::adam({.lr = 0.01})},
      {"adam_amsgrad", optim::adam({.lr = 0.01, .weight_decay = 0.1, .amsgrad = true})},
      {"adamw", optim::adamw({.lr = 0.01})},
      {"adamw_maximize", optim::adamw({.lr = 0.01, .amsgrad = true, .maximize = true})},
      {"torch_sgd", optim::torch_optimizer<torch::optim::SGD>(
                        torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true))},
      {"torch_adam",
       optim::torch_optimizer<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true))},
      {"torch_adamw",
       optim::torch_optimizer<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01))},
      {"torch_adagrad",
       optim::torch_optimizer<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1))},
      {"torch_rmsprop",
       optim::torch_optimizer<RMSprop>(RMSpropOptions(0.01).momentum(0.5).centered(true))},
  };
}

/// What the optimizer keeps, found by tracing: it gives no names to all of it.
std::vector<levin::NamedTensor> state_of(const levin::graph::GraphModule& module) {
  return module.state();
}

struct Training {
  torch::nn::Sequential net{torch::nn::Linear(5, 8), torch::nn::BatchNorm1d(8), torch::nn::Tanh(),
                            torch::nn::Linear(8, 3)};
  Tensors batch() const { return {torch::randn({6, 5}), torch::randint(3, {6})}; }
};

class Optimizers : public testing::TestWithParam<OptimizerCase> {};

/// Three steps, each traced as it is made, and interpreted from where it began.
TEST_P(Optimizers, EqualEagerOverSteps) {
  for (const bool by_levin : {true, false}) {
    torch::manual_seed(5);
    Training training;
    auto optimizer =
        optim::build_optimizer(GetParam().config, levin::named_parameters(*training.net));
    const auto step = [&](const Tensor& x, const Tensor& y) {
      optimizer->zero_grad();
      const Tensor loss = torch::nn::functional::cross_entropy(training.net->forward(x), y);
      by_levin ? levin::backward(loss) : loss.backward();
      optimizer->step();
      return loss;
    };
    for (int64_t i = 0; i < 3; ++i) {
      const Tensors batch = training.batch();
      // Optimizers of torch make their state at the first step.
      if (i == 0) step(batch[0], batch[1]);
      const auto shadow =
          levin::trace(step, batch, {.state = levin::named_parameters(*training.net)});
      Tensors after = levin::test::copies_of(levin::test::Tensors());
      std::vector<levin::NamedTensor> state = state_of(shadow);
      ASSERT_GE(state.size(), 9U);

      // The same step of the same optimizer once more, from a copy of where it is.
      const levin::test::Kept before(state);
      const auto module =
          levin::trace(step, batch, {.state = levin::named_parameters(*training.net)});
      const levin::test::Kept eager(state);
      before.restore(state);
      module.graph().lint();
      levin::graph::GraphModule again(module.graph().clone());
      again(batch);
      const levin::test::Kept interpreted(state);
      levin::test::expect_same(interpreted.contents, eager.contents, "state");
      levin::test::expect_same(interpreted.gradients, eager.gradients, "gradient");
      EXPECT_NE(levin::graph::to_text(module.graph()).find("update "), std::string::npos);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Optimizers, testing::ValuesIn(optimizer_cases()),
                         [](const auto& info) { return info.param.name; });

/// Fused updates take their step count from a tensor, so that one graph serves all steps.
TEST(OptimizersReplayed, AFusedStepGoesOnAsEagerDoes) {
  for (const auto& config :
       {optim::sgd({.lr = 0.1, .momentum = 0.9}), optim::adamw({.lr = 0.01})}) {
    const auto run = [&](bool replayed) {
      torch::manual_seed(5);
      Training training;
      auto optimizer = optim::build_optimizer(config, levin::named_parameters(*training.net));
      const auto step = [&](const Tensor& x, const Tensor& y) {
        optimizer->zero_grad();
        const Tensor loss = torch::nn::functional::cross_entropy(training.net->forward(x), y);
        levin::backward(loss);
        optimizer->step();
        return loss;
      };
      Tensors results;
      std::optional<levin::graph::GraphModule> module;
      for (int64_t i = 0; i < 6; ++i) {
        const Tensors batch = training.batch();
        // The first step of momentum is another than the later ones.
        if (replayed && i == 2) {
          module = levin::trace(
              [&](const Tensor& x, const Tensor& y) { return results.emplace_back(step(x, y)); },
              batch);
        } else if (module) {
          results.push_back((*module)(batch).at(0));
        } else {
          results.push_back(step(batch[0], batch[1]));
        }
      }
      for (const Tensor& parameter : training.net->parameters()) {
        results.push_back(parameter);
        results.push_back(parameter.grad());
      }
      return results;
    };
    levin::test::expect_same(run(true), run(false), "after six steps");
  }
}

}  // namespace
