// Corners of the loops where something could go wrong without a word: options at their limits,
// loaders that are used twice, and what hooks see.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/trainer/numbered_run.h"

namespace corners {
namespace {

using namespace numbered_run;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Clipping, ZeroIsOff) {
  const auto trained = [](std::optional<double> limit, const std::string& algorithm) {
    auto options = bare();
    options.gradient_clip_val = limit;
    options.gradient_clip_algorithm = algorithm;
    const auto net = std::make_shared<Net>(0.0);
    torch::manual_seed(3);
    for (auto& p : net->parameters()) p.detach().normal_();
    levin::Trainer(options).fit(net, levin::DataLoader(dataset(32), {.batch_size = 8}));
    return net;
  };
  for (const std::string algorithm : {"norm", "value"}) {
    expect_same_weights(*trained(0.0, algorithm), *trained(std::nullopt, algorithm));
  }
}

TEST(Modes, PartsInEvaluationModeStayThereInFit) {
  const auto net = std::make_shared<Net>();
  net->net->ptr(1)->eval();
  const auto norm = net->net->ptr(1)->as<torch::nn::BatchNorm1d>();
  const at::Tensor mean = norm->running_mean.clone();
  ::testing::internal::CaptureStderr();
  levin::Trainer(bare()).fit(net, levin::DataLoader(dataset(32), {.batch_size = 8}),
                             levin::DataLoader(dataset(8), {.batch_size = 8}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("1 modules are in evaluation mode"));
  EXPECT_FALSE(norm->is_training());
  EXPECT_TRUE(torch::equal(norm->running_mean, mean));
}

// In the sanity check before training, and between its batches.
TEST(Uncaught, AnErrorOfValidationSaysThatItIsOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork has no threads of OpenMP
  struct Failing : Net {
    void validation_step(const levin::Batch&, int64_t index) override {
      if (index == 1) throw std::runtime_error("too wide");
    }
  };
  auto options = bare();
  options.val_check_interval = 2;
  for (const int64_t sanity : {2, 0}) {
    options.num_sanity_val_steps = sanity;
    const std::string around = sanity == 2 ? "sanity check" : "epoch 0";
    EXPECT_EXIT(([&]() noexcept {
                  levin::Trainer(options).fit(std::make_shared<Failing>(),
                                              levin::DataLoader(dataset(32), {.batch_size = 8}),
                                              levin::DataLoader(dataset(16), {.batch_size = 8}));
                }()),
                ::testing::ExitedWithCode(1), "too wide \\[" + around + ", validation batch 1\\]");
  }
}

TEST(Loaders, OneForTrainingAndValidationIsReadByEachFromItsStart) {
  auto options = bare();
  options.val_check_interval = 2;
  const auto loader = numbers(10, 2);
  const auto net = std::make_shared<Seeing>();
  levin::Trainer(options).fit(net, loader, loader);
  std::vector<int64_t> twice = range(0, 10);
  for (const int64_t number : range(0, 10)) twice.push_back(number);
  EXPECT_EQ(net->trained, twice);
  ASSERT_EQ(net->validated.size(), 40U);  // twice an epoch
  EXPECT_EQ(std::vector<int64_t>(net->validated.begin(), net->validated.begin() + 10),
            range(0, 10));
}

TEST(Loaders, ASamplerForTrainingAndValidationIsAnError) {
  const auto data =
      levin::data::tensors({{"x", torch::ones({4, 1})}, {"number", torch::arange(4)}});
  const auto sampler = levin::sequential_sampler(4);
  levin::Trainer trainer(bare());
  EXPECT_THAT(levin::test::error_of([&] {
                trainer.fit(std::make_shared<Seeing>(),
                            levin::DataLoader(data, {.sampler = sampler}),
                            levin::DataLoader(data, {.sampler = sampler}));
              }),
              HasSubstr("share one sampler"));
}

TEST(Loaders, ASecondFitReadsFromTheStart) {
  auto options = bare();
  options.max_epochs = -1;
  options.max_steps = 3;  // of 5 batches
  const auto loader = numbers(10, 2);
  const auto first = std::make_shared<Seeing>(), second = std::make_shared<Seeing>();
  levin::Trainer(options).fit(first, loader);
  levin::Trainer(options).fit(second, loader);
  EXPECT_EQ(first->trained, range(0, 6));
  EXPECT_EQ(second->trained, range(0, 6));
}

struct WithLoaders : Seeing {
  std::optional<levin::DataLoader> val_dataloader() override { return numbers(3, 2, 100); }
  std::optional<levin::DataLoader> test_dataloader() override { return numbers(3, 2, 200); }
  std::optional<levin::DataLoader> predict_dataloader() override { return numbers(3, 2, 300); }
};

TEST(Loaders, ThoseOfTheModuleServeValidateTestAndPredict) {
  const auto net = std::make_shared<WithLoaders>();
  levin::Trainer trainer(bare());
  trainer.validate(net);
  EXPECT_EQ(net->validated, range(100, 103));
  net->validated.clear();
  trainer.test(net);
  EXPECT_EQ(net->validated, range(200, 203));
  EXPECT_TRUE(torch::equal(torch::cat(trainer.predict(net)), torch::arange(300, 303)));
  const auto without = std::make_shared<Seeing>();
  for (const auto& run : std::vector<std::function<void()>>{[&] { trainer.validate(without); },
                                                            [&] { trainer.test(without); },
                                                            [&] { trainer.predict(without); }}) {
    EXPECT_THAT(levin::test::error_of(run), HasSubstr("trainer.dataloader"));
  }
}

TEST(ManualOptimization, CallsTheHooksOfBackwardAndStep) {
  struct Manual : Seeing {
    std::vector<std::string> calls;
    std::vector<double> rates;
    Manual() { automatic_optimization = false; }
    at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
      const auto loss = Seeing::training_step(batch, index);
      optimizer().zero_grad();
      manual_backward(loss);
      optimizer().step();
      return loss;
    }
    void on_before_backward(const at::Tensor& loss) override {
      EXPECT_TRUE(loss.requires_grad());
      EXPECT_FALSE(layer->weight.grad().defined());
      calls.emplace_back("before_backward");
    }
    void on_after_backward() override {
      EXPECT_TRUE(layer->weight.grad().defined());
      calls.emplace_back("after_backward");
    }
    void on_before_optimizer_step(levin::OptimizerHandle& handle) override {
      rates.push_back(handle.learning_rate());
      calls.emplace_back("before_step");
      layer->weight.mutable_grad().zero_();  // what it does to gradients counts
    }
  };
  auto options = bare();
  options.max_epochs = 1;
  const auto net = std::make_shared<Manual>();
  const at::Tensor before = net->layer->weight.detach().clone();
  levin::Trainer(options).fit(net, numbers(2, 2));
  EXPECT_THAT(net->calls, ElementsAre("before_backward", "after_backward", "before_step"));
  EXPECT_THAT(net->rates, ElementsAre(0.1));
  EXPECT_TRUE(torch::equal(net->layer->weight, before));
}

TEST(Evaluate, SeesTheStepAndEpochAtWhichFitEnded) {
  struct Asking : Seeing {
    int64_t epoch = -1, step = -1;
    void test_step(const levin::Batch&, int64_t) override {
      epoch = current_epoch();
      step = global_step();
    }
  };
  const auto net = std::make_shared<Asking>();
  levin::Trainer trainer(bare());
  trainer.fit(net, numbers(5, 2));
  trainer.test(net, numbers(2, 2));
  EXPECT_EQ(net->epoch, 2);
  EXPECT_EQ(net->step, 6);
  EXPECT_EQ(trainer.global_step(), 6);
  trainer.validate(net, numbers(2, 2));
  EXPECT_EQ(trainer.global_step(), 6);
}

TEST(Limits, TimeWaitsForTheFewestStepsAndEpochs) {
  auto options = bare();
  options.max_epochs = -1;
  options.max_time = "00:00";
  options.min_steps = 4;
  levin::Trainer steps(options);
  steps.fit(std::make_shared<Seeing>(), numbers(5, 2));
  EXPECT_EQ(steps.global_step(), 4);
  options.min_steps = 0;
  options.min_epochs = 2;
  levin::Trainer epochs(options);
  epochs.fit(std::make_shared<Seeing>(), numbers(5, 2));
  EXPECT_EQ(epochs.global_step(), 6);
}

TEST(FastDevRun, TakesItsBatchesAndNoSanityCheckWhateverElseIsSet) {
  auto options = bare();
  options.fast_dev_run = 1;
  options.num_sanity_val_steps = 2;
  options.val_check_interval = 3;
  options.check_val_every_n_epoch = 2;
  const auto net = std::make_shared<Seeing>();
  levin::Trainer(options).fit(net, numbers(10, 2), numbers(10, 2));
  EXPECT_EQ(net->trained, range(0, 2));
  EXPECT_EQ(net->validated, range(0, 2));
}

}  // namespace
}  // namespace corners
