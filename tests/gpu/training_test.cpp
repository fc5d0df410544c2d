// 1: small networks train on the card as they do on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/tasks.h"

namespace levin::test::gpu {
namespace training_test {
namespace {

using ::testing::Each;

/// Of float32 sums in another order, over 10 steps.
constexpr double kTolerance = 1e-5;

struct Net {
  std::string name;
  Task (*make)();
};
void PrintTo(const Net& net, std::ostream* out) { *out << net.name; }

class Gpu1Training : public OnGpu, public ::testing::WithParamInterface<Net> {};

TEST_P(Gpu1Training, ByTheTrainerEqualsTheCpu) {
  const Trained wanted = trained_by_trainer(GetParam().make, "cpu");
  const Trained got = trained_by_trainer(GetParam().make, accelerator());
  EXPECT_EQ(difference(got, wanted, kTolerance), "");
  const Trained untrained{.losses = got.losses, .weights = on_cpu(*built(GetParam().make).module)};
  EXPECT_NE(difference(got, untrained, 1e-3), "");
}

TEST_P(Gpu1Training, ByTheAcceleratorEqualsTheCpu) {
  const Trained wanted = trained_by_accelerator(GetParam().make, {.cpu = true});
  const Trained got = trained_by_accelerator(GetParam().make, {.accelerator = accelerator()});
  EXPECT_EQ(difference(got, wanted, kTolerance), "");
}

TEST_P(Gpu1Training, ByTheTrainerEqualsTheAcceleratorBitForBit) {
  const Trained by_trainer = trained_by_trainer(GetParam().make, accelerator());
  const Trained by_loop = trained_by_accelerator(GetParam().make, {.accelerator = accelerator()});
  EXPECT_EQ(difference(by_trainer, by_loop, 0.0), "");
}

TEST_P(Gpu1Training, AccumulatedAndClippedEqualsTheCpu) {
  const auto options = [](TrainerOptions& options) {
    options.accumulate_grad_batches = 2;
    options.gradient_clip_val = 0.1;
  };
  const Trained wanted = trained_by_trainer(GetParam().make, "cpu", options);
  EXPECT_EQ(
      difference(trained_by_trainer(GetParam().make, accelerator(), options), wanted, kTolerance),
      "");
}

INSTANTIATE_TEST_SUITE_P(Nets, Gpu1Training,
                         ::testing::Values(Net{"Mlp", mlp}, Net{"ConvolutionsWithBatchNorm", cnn},
                                           Net{"Gpt", gpt}, Net{"Lstm", lstm}),
                         [](const auto& info) { return info.param.name; });

class Gpu1Runs : public OnGpu {};

TEST_F(Gpu1Runs, TwoOfThemAreTheSameBits) {
  for (Task (*make)() : {mlp, cnn, gpt, lstm}) {
    const Trained one = trained_by_trainer(make, accelerator());
    EXPECT_EQ(difference(trained_by_trainer(make, accelerator()), one, 0.0), "");
  }
}

TEST_F(Gpu1Runs, EveryOptimizerEqualsTheCpu) {
  const std::pair<std::string, OptimizerConfig> all[] = {
      {"sgd", optim::sgd({.lr = 0.05})},
      {"nesterov", optim::sgd({.lr = 0.05, .momentum = 0.9, .nesterov = true})},
      {"adam", optim::adam({.lr = 1e-3, .eps = 1e-4})},
      {"adamw", optim::adamw({.lr = 1e-3, .eps = 1e-4, .weight_decay = 0.1})}};
  for (const auto& [name, config] : all) {
    std::vector<std::vector<double>> losses;
    for (const std::string& where : {std::string("cpu"), accelerator()}) {
      const Scratch scratch;
      TrainerOptions options = small_run::quiet(scratch.str());
      options.accelerator = where;
      options.max_epochs = 1;
      options.enable_checkpointing = false;
      const auto module = std::make_shared<TaskModule>(built(mlp));
      module->optimizer = config;
      Trainer trainer(options);
      trainer.fit(module, DataLoader(data_of(module->task), {.batch_size = kGlobalBatch}));
      losses.push_back(numbers(module->losses));
    }
    EXPECT_EQ(off_by(torch::tensor(losses[1]), torch::tensor(losses[0]), kTolerance), "") << name;
  }
}

TEST_F(Gpu1Runs, GiveWhatTheyLogAndEvaluateAsTheCpuDoes) {
  std::vector<std::vector<small_run::Recorder::Row>> rows;
  for (const std::string& where : {std::string("cpu"), accelerator()}) {
    const Scratch scratch;
    TrainerOptions options = small_run::quiet(scratch.str());
    options.accelerator = where;
    options.max_epochs = 2;
    options.log_every_n_steps = 1;
    options.enable_checkpointing = false;
    const auto recorder = std::make_shared<small_run::Recorder>();
    options.logger = recorder;
    torch::manual_seed(2);
    const auto net = std::make_shared<small_run::Net>(/*dropout=*/0.0);
    Trainer trainer(options);
    trainer.fit(net, DataLoader(small_run::dataset(40), {.batch_size = 8}),
                DataLoader(small_run::dataset(24, 6), {.batch_size = 8}));
    rows.push_back(recorder->rows);
  }
  ASSERT_EQ(rows[0].size(), rows[1].size());
  for (size_t i = 0; i < rows[0].size(); ++i) {
    EXPECT_EQ(rows[1][i].name, rows[0][i].name);
    EXPECT_EQ(rows[1][i].step, rows[0][i].step);
    EXPECT_NEAR(rows[1][i].value, rows[0][i].value, 1e-4)
        << rows[0][i].name << " of step " << rows[0][i].step;
  }
}

}  // namespace
}  // namespace training_test
}  // namespace levin::test::gpu
