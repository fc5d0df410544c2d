#include "levin/optim/optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/optim/optim.h"
#include "tests/support/error_of.h"

namespace {

using levin::OptimizerConfig;
using levin::test::error_id;

std::vector<levin::NamedTensor> make_parameters() {
  torch::manual_seed(3);
  return {{"a", torch::randn({3, 2}).requires_grad_()}, {"b", torch::randn({5}).requires_grad_()}};
}

void give_gradients(const std::vector<levin::NamedTensor>& parameters, int64_t step,
                    bool skip_b = false) {
  torch::manual_seed(100 + static_cast<uint64_t>(step));
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor gradient = torch::randn(tensor.sizes(), tensor.options());
    if (!(skip_b && name == "b")) tensor.mutable_grad() = gradient;
  }
}

struct Case {
  std::string name;
  std::function<OptimizerConfig()> config;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> torch_optimizer;
};

std::vector<Case> cases() {
  return {
      {"sgd", [] { return levin::optim::sgd({.lr = 0.1}); },
       [](auto p) { return std::make_unique<torch::optim::SGD>(p, 0.1); }},
      {"sgd_momentum",
       [] {
         return levin::optim::sgd(
             {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
       },
       [](auto p) {
         return std::make_unique<torch::optim::SGD>(
             p, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true));
       }},
      {"adam", [] { return levin::optim::adam({.lr = 0.01, .weight_decay = 0.1}); },
       [](auto p) {
         return std::make_unique<torch::optim::Adam>(
             p, torch::optim::AdamOptions(0.01).weight_decay(0.1));
       }},
      {"adamw_amsgrad", [] { return levin::optim::adamw({.lr = 0.01, .amsgrad = true}); },
       [](auto p) {
         return std::make_unique<torch::optim::AdamW>(
             p, torch::optim::AdamWOptions(0.01).amsgrad(true));
       }},
      {"rmsprop",
       [] {
         return levin::optim::torch_optimizer<torch::optim::RMSprop>(
             torch::optim::RMSpropOptions(0.01).momentum(0.5));
       },
       [](auto p) {
         return std::make_unique<torch::optim::RMSprop>(
             p, torch::optim::RMSpropOptions(0.01).momentum(0.5));
       }},
  };
}

TEST(Optimizer, EqualsTorchOptimAlsoWhenAGradientIsMissing) {
  for (const Case& one : cases()) {
    auto mine = make_parameters();
    auto theirs = make_parameters();
    auto optimizer = levin::optim::build_optimizer(one.config(), mine);
    auto reference = one.torch_optimizer({theirs[0].tensor, theirs[1].tensor});
    for (int64_t step = 0; step < 12; ++step) {
      const bool skip_b = step % 3 == 1;
      give_gradients(mine, step, skip_b);
      give_gradients(theirs, step, skip_b);
      optimizer->step();
      reference->step();
      optimizer->zero_grad();
      reference->zero_grad();
    }
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_TRUE(torch::allclose(mine[i].tensor, theirs[i].tensor, 1e-6, 1e-7)) << one.name;
    }
  }
}

TEST(Optimizer, StateTakesUpBitForBit) {
  for (const Case& one : cases()) {
    auto whole = make_parameters();
    auto first = make_parameters();
    auto run = levin::optim::build_optimizer(one.config(), whole);
    auto before = levin::optim::build_optimizer(one.config(), first);
    for (int64_t step = 0; step < 5; ++step) {
      give_gradients(whole, step, step == 2);
      give_gradients(first, step, step == 2);
      run->step();
      before->step();
    }
    auto second = make_parameters();
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < second.size(); ++i) second[i].tensor.copy_(first[i].tensor);
    }
    auto after = levin::optim::build_optimizer(one.config(), second);
    after->load_state_dict(before->state_dict());
    for (int64_t step = 5; step < 9; ++step) {
      give_gradients(whole, step);
      give_gradients(second, step);
      run->step();
      after->step();
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(torch::equal(whole[i].tensor, second[i].tensor)) << one.name;
    }
  }
}

TEST(Optimizer, ZeroGradDropsTheGradients) {
  auto parameters = make_parameters();
  auto optimizer = levin::optim::build_optimizer(levin::optim::adam(), parameters);
  give_gradients(parameters, 0);
  optimizer->zero_grad();
  EXPECT_FALSE(parameters[0].tensor.grad().defined());
}

TEST(Optimizer, GradientOfAnotherLayoutIsLaidOutAnew) {
  auto mine = make_parameters();
  auto theirs = make_parameters();
  auto optimizer = levin::optim::build_optimizer(levin::optim::adam({.lr = 0.1}), mine);
  auto reference = levin::optim::build_optimizer(levin::optim::adam({.lr = 0.1}), theirs);
  give_gradients(mine, 1);
  give_gradients(theirs, 1);
  mine[0].tensor.mutable_grad() = theirs[0].tensor.grad().t().contiguous().t();
  optimizer->step();
  reference->step();
  EXPECT_TRUE(torch::equal(mine[0].tensor, theirs[0].tensor));
}

TEST(Optimizer, RefusesTheStateOfOthers) {
  const auto state_of = [](const OptimizerConfig& config,
                           std::vector<levin::NamedTensor> parameters) {
    return levin::optim::build_optimizer(config, std::move(parameters))->state_dict();
  };
  auto optimizer = levin::optim::build_optimizer(levin::optim::adam(), make_parameters());
  auto renamed = make_parameters();
  renamed[1].name = "c";
  auto reshaped = make_parameters();
  reshaped[1].tensor = torch::randn({6}).requires_grad_();
  EXPECT_EQ(error_id([&] {
              optimizer->load_state_dict(state_of(levin::optim::sgd(), make_parameters()));
            }),
            "optim.state.kind");
  EXPECT_EQ(error_id([&] { optimizer->load_state_dict(state_of(levin::optim::adam(), renamed)); }),
            "optim.state.names");
  EXPECT_EQ(error_id([&] { optimizer->load_state_dict(state_of(levin::optim::adam(), reshaped)); }),
            "optim.state.shape");
  EXPECT_EQ(error_id([&] {
              optimizer->load_state_dict(
                  state_of(levin::optim::adam().group("a", {.lr = 1.0}), make_parameters()));
            }),
            "optim.state.groups");
}

TEST(Optimizer, TorchClassRefusesAnotherOrder) {
  const auto config =
      levin::optim::torch_optimizer<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1));
  auto parameters = make_parameters();
  const levin::State state = levin::optim::build_optimizer(config, parameters)->state_dict();
  std::swap(parameters[0], parameters[1]);
  EXPECT_EQ(
      error_id([&] { levin::optim::build_optimizer(config, parameters)->load_state_dict(state); }),
      "optim.state.order");
}

TEST(Optimizer, SparseGradientIsRefused) {
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 3).sparse(true));
  auto optimizer =
      levin::optim::build_optimizer(levin::optim::adam(), levin::named_parameters(*embedding));
  embedding->forward(torch::tensor({1, 2})).sum().backward();
  EXPECT_EQ(error_id([&] { optimizer->step(); }), "optim.sparse");
}

// The rate is a tensor then, and a schedule changes it.
TEST(Optimizer, CapturableMakesTheSameSteps) {
  for (const OptimizerConfig& config :
       {OptimizerConfig(levin::optim::sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01})),
        OptimizerConfig(levin::optim::adam({.lr = 0.01, .amsgrad = true})),
        OptimizerConfig(levin::optim::adamw({.lr = 0.01}))}) {
    const auto plain = make_parameters(), capturable = make_parameters();
    const auto by_number = levin::optim::build_optimizer(config, plain);
    const auto by_tensor = levin::optim::build_optimizer(config, capturable);
    ASSERT_TRUE(by_tensor->set_capturable(true));
    for (int64_t step = 0; step < 5; ++step) {
      for (const auto* optimizer : {&by_number, &by_tensor}) {
        (*optimizer)->groups()[0].lr = 0.1 / static_cast<double>(step + 3);
      }
      give_gradients(plain, step);
      give_gradients(capturable, step);
      by_number->step();
      by_tensor->step();
    }
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(torch::equal(plain[i].tensor, capturable[i].tensor)) << config.name();
    }
  }
}

TEST(Optimizer, AdvancesWhatStepsCount) {
  const auto parameters = make_parameters();
  const auto optimizer = levin::optim::build_optimizer(levin::optim::adam({}), parameters);
  optimizer->set_capturable(true);
  give_gradients(parameters, 0);
  optimizer->step();
  for (int64_t i = 0; i < 2; ++i) {
    optimizer->before_replay();
    optimizer->before_replay();  // the replay was given up, and counts nothing
    optimizer->replayed(optimizer->moved());
  }
  const levin::State state = optimizer->state_dict().child("parameters").child("b");
  EXPECT_EQ(state.integer("step"), 3);
}

TEST(Optimizer, ThatIsNotCapturableDoesNotAdvance) {
  const auto parameters = make_parameters();
  const auto fused = levin::optim::build_optimizer(levin::optim::sgd({.lr = 0.1}), parameters);
  EXPECT_EQ(error_id([&] { fused->moved(); }), "optim.capturable");
  const auto by_torch = levin::optim::build_optimizer(
      levin::optim::torch_optimizer<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.1)),
      make_parameters());
  EXPECT_FALSE(by_torch->set_capturable(true));
}

}  // namespace
