// Steps that compute the loss themselves, in a Trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/trainer/small_run.h"

namespace {

using levin::test::error_of;
using small_run::quiet;
using ::testing::HasSubstr;

torch::optim::LBFGSOptions searching() {
  return torch::optim::LBFGSOptions(0.5).max_iter(5).line_search_fn("strong_wolfe");
}

struct Fitted : levin::Module {
  torch::nn::Linear net = register_module("net", torch::nn::Linear(6, 1));
  int64_t hooks = 0, evaluations = 0;
  bool has_gradients = true;

  explicit Fitted(bool automatic) {
    torch::manual_seed(3);
    net->reset_parameters();
    automatic_optimization = automatic;
  }
  at::Tensor loss_of(const at::Tensor& x) {
    ++evaluations;
    return torch::mse_loss(net->forward(x), x.sum(1, true).tanh());
  }
  at::Tensor training_step(const levin::Batch& batch) override {
    if (automatic_optimization) return loss_of(batch["x"]);
    return optimizer().step([&] {
      optimizer().zero_grad();
      const at::Tensor loss = loss_of(batch["x"]);
      manual_backward(loss);
      return loss;
    });
  }
  void on_before_optimizer_step(levin::OptimizerHandle&) override {
    ++hooks;
    has_gradients &= net->weight.grad().defined();
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::torch_optimizer<torch::optim::LBFGS>(searching());
  }
};

levin::DataLoader loader() { return {small_run::dataset(32), {.batch_size = 8}}; }

levin::TrainerOptions two_epochs(const levin::test::Scratch& scratch) {
  levin::TrainerOptions options = quiet(scratch.str());
  options.max_epochs = 2;
  options.enable_checkpointing = false;
  return options;
}

TEST(TrainerWithClosure, TrainsByLbfgsAsLibTorch) {
  const levin::test::Scratch scratch;
  const auto module = std::make_shared<Fitted>(false);
  levin::Trainer trainer(two_epochs(scratch));
  trainer.fit(module, loader());
  EXPECT_EQ(trainer.global_step(), 8);

  Fitted by_hand(false);
  torch::optim::LBFGS optimizer(by_hand.net->parameters(), searching());
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const levin::Batch& batch : loader()) {
      optimizer.step([&] {
        optimizer.zero_grad();
        at::Tensor loss = by_hand.loss_of(batch["x"]);
        loss.backward();
        return loss;
      });
    }
  }
  EXPECT_TRUE(torch::equal(module->net->weight, by_hand.net->weight));
  EXPECT_EQ(module->evaluations, by_hand.evaluations);
  EXPECT_EQ(module->hooks, module->evaluations);
  EXPECT_TRUE(module->has_gradients);
}

TEST(TrainerWithClosure, LbfgsWithAutomaticOptimizationEqualsManual) {
  const levin::test::Scratch scratch;
  const auto automatic = std::make_shared<Fitted>(true), manual = std::make_shared<Fitted>(false);
  levin::Trainer trainer(two_epochs(scratch));
  trainer.fit(automatic, loader());
  EXPECT_EQ(trainer.global_step(), 8);
  trainer.fit(manual, loader());
  EXPECT_TRUE(torch::equal(automatic->net->weight, manual->net->weight));
  EXPECT_EQ(automatic->evaluations, manual->evaluations);
  EXPECT_EQ(automatic->hooks, automatic->evaluations);
  EXPECT_TRUE(automatic->has_gradients);
}

TEST(TrainerWithClosure, ClipsTheGradientsOfEachEvaluation) {
  const levin::test::Scratch scratch;
  levin::TrainerOptions options = two_epochs(scratch);
  options.gradient_clip_val = 0.1;
  const auto module = std::make_shared<Fitted>(true);
  levin::Trainer(options).fit(module, loader());

  Fitted by_hand(false);
  torch::optim::LBFGS optimizer(by_hand.net->parameters(), searching());
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const levin::Batch& batch : loader()) {
      optimizer.step([&] {
        optimizer.zero_grad();
        at::Tensor loss = by_hand.loss_of(batch["x"]);
        loss.backward();
        torch::nn::utils::clip_grad_norm_(by_hand.net->parameters(), 0.1);
        return loss;
      });
    }
  }
  EXPECT_TRUE(torch::allclose(module->net->weight, by_hand.net->weight, 0, 1e-6));
}

TEST(TrainerWithClosure, LbfgsDoesNotAccumulate) {
  const levin::test::Scratch scratch;
  levin::TrainerOptions options = two_epochs(scratch);
  options.accumulate_grad_batches = 2;
  EXPECT_THAT(
      error_of([&] { levin::Trainer(options).fit(std::make_shared<Fitted>(true), loader()); }),
      HasSubstr("optim.closure"));
}

}  // namespace
