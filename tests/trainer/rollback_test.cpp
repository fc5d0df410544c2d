// A run goes back to its newest checkpoint after a bad loss, and on with the batches after it: it equals a run that
// skips the batches since that checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace rollback_test {
namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Batches by the number of the call that trains on them.
struct Injected : levin::Module {
  torch::nn::Linear layer{nullptr};
  std::set<int64_t> bad, skipped;
  double factor = kNan;  ///< of a bad loss
  bool breaks_weights = false;
  bool by_epoch = false;      ///< the schedule halves the rate after each epoch
  std::vector<double> rates;  ///< after each batch
  int64_t calls = 0;

  Injected() {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(6, 3));
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    const int64_t call = calls++;
    if (skipped.contains(call)) return {};
    at::Tensor loss = torch::nn::functional::cross_entropy(layer->forward(batch["x"]), batch["y"]);
    log("mean_loss", loss, {.on_step = false, .on_epoch = true});
    return bad.contains(call) && !breaks_weights ? loss * factor : loss;
  }
  void optimizer_step(levin::OptimizerHandle& optimizer) override {
    optimizer.step();
    if (!breaks_weights || !bad.contains(calls - 1)) return;
    const at::NoGradGuard no_grad;
    layer->weight.fill_(kNan);
  }
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t) override {
    rates.push_back(optimizer().learning_rate());
  }
  levin::OptimizerConfig configure_optimizers() override {
    if (by_epoch) {
      return levin::optim::sgd({.lr = 1e-2})
          .schedule(levin::optim::exponential({.gamma = 0.5}).by_epoch());
    }
    return levin::optim::adamw({.lr = 1e-2})
        .schedule(levin::optim::cosine({.warmup_steps = 3, .total_steps = 40}));
  }
};

struct Setting {
  std::string strategy = "single";
  std::string nan_policy = "rollback", spike_policy = "off";
  int64_t accumulate = 1, every_n_train_steps = 3, max_epochs = 2, max_rollbacks = 3;
  bool averages = false;
};

struct Outcome {
  std::shared_ptr<Injected> module = std::make_shared<Injected>();
  int64_t steps = 0;
  double mean_loss = 0.0;
};

void train(Outcome& run, const fs::path& root, const Setting& setting) {
  levin::TrainerOptions options = quiet(root.string());
  options.strategy = setting.strategy;
  options.max_epochs = setting.max_epochs;
  options.accumulate_grad_batches = setting.accumulate;
  options.engine.loss_guard = {.nan_policy = setting.nan_policy,
                               .spike_policy = setting.spike_policy,
                               .spike_window = 3,
                               .max_rollbacks = setting.max_rollbacks};
  options.callbacks = {
      levin::model_checkpoint({.every_n_train_steps = setting.every_n_train_steps})};
  if (setting.averages) options.callbacks.push_back(levin::weight_averaging({.decay = 0.9}));
  levin::Trainer trainer(options);
  trainer.fit(run.module,
              levin::DataLoader(dataset(40), {.batch_size = 2, .shuffle = true, .seed = 3}));
  run.steps = trainer.global_step();
  run.mean_loss = trainer.callback_metrics().at("mean_loss");
}

/// "" if a run with these bad batches equals one that skips the others.
std::string differs(const std::set<int64_t>& bad, const std::set<int64_t>& skipped,
                    const Setting& setting, const std::function<void(Injected&)>& change = {},
                    const fs::path& root = Scratch().path()) {
  Outcome mended, reference;
  mended.module->bad = bad;
  if (change) change(*mended.module);
  reference.module->skipped = skipped;
  train(mended, root / "mended", setting);
  Setting plain = setting;
  plain.nan_policy = plain.spike_policy = "off";
  train(reference, root / "reference", plain);
  if (mended.steps != reference.steps) {
    return c10::str("took ", mended.steps, " steps, wanted ", reference.steps);
  }
  if (!std::isfinite(mended.mean_loss)) return "the epoch's mean is no number";
  const auto a = mended.module->parameters(), b = reference.module->parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    if (!torch::equal(a[i], b[i])) return c10::str("parameter ", i, " differs");
  }
  return "";
}

// Steps 1 to 7 are of the batches 0 to 6, and the checkpoint of step 6 is the newest.
TEST(Rollback, OfANanLoss) { EXPECT_EQ(differs({7}, {6, 7}, {}), ""); }

TEST(Rollback, OfASecondNanLossAfterwards) {
  // After the first, step 6 is of batch 5, and step 9 of batch 10.
  EXPECT_EQ(differs({7, 11}, {6, 7, 11}, {}), "");
}

TEST(Rollback, IntoTheEpochBefore) { EXPECT_EQ(differs({20}, {18, 19, 20}, {}), ""); }

TEST(Rollback, OfAnAccumulationWindow) {
  EXPECT_EQ(differs({7}, {4, 5, 6, 7}, {.accumulate = 2, .every_n_train_steps = 2}), "");
}

// A checkpoint of a validation there has the rates of the next epoch.
TEST(Rollback, AtAnEpochsEndSchedulesByEpochHaveMoved) {
  const Scratch scratch;
  for (const int64_t bad : {18, 19}) {
    Outcome run;
    run.module->bad = {bad};
    run.module->by_epoch = true;
    train(run, scratch.path() / std::to_string(bad), {});
    std::vector<double> wanted(19, 1e-2);
    wanted.resize(39, 5e-3);
    wanted.push_back(2.5e-3);
    EXPECT_EQ(run.module->rates, wanted) << bad;
  }
}

TEST(Rollback, OfASpike) {
  const Setting spikes{.nan_policy = "off", .spike_policy = "rollback"};
  EXPECT_EQ(differs({7}, {6, 7}, spikes, [](Injected& module) { module.factor = 1000.0; }), "");
}

TEST(Rollback, OfWeightsThatAStepWithAFiniteLossBroke) {
  // Every step is saved, and that one is not.
  const Setting often{.every_n_train_steps = 1};
  EXPECT_EQ(differs({7}, {7}, often, [](Injected& module) { module.breaks_weights = true; }), "");
}

TEST(Rollback, OfTheAverageOfTheWeights) {
  EXPECT_EQ(differs({7}, {6, 7}, {.averages = true}), "");
}

TEST(Rollback, OnTwoRanksWhenOneHasABadLoss) {
  for (const std::string strategy : {"ddp", "fsdp", "zero"}) {
    const auto words = run_world(2, [&](int64_t rank, const fs::path& root) {
      return differs({rank == 1 ? 7 : -1}, {6, 7}, {.strategy = strategy}, {}, root);
    });
    EXPECT_THAT(words, Each("")) << strategy;
  }
}

TEST(Rollback, IsLimited) {
  const Scratch scratch;
  Outcome run;
  run.module->bad = {7, 11};
  EXPECT_THAT(error_of([&] { train(run, scratch.path(), {.max_rollbacks = 1}); }),
              HasSubstr("trainer.rollback: batch 11 of epoch 0 asks for one more rollback"));
}

TEST(Rollback, NeedsACheckpointOfThisRun) {
  const Scratch scratch;
  Outcome run;
  run.module->bad = {1};
  EXPECT_THAT(
      error_of([&] { train(run, scratch.path(), {}); }),
      HasSubstr("trainer.rollback: batch 1 of epoch 0 asks for a rollback, but this run has "
                "saved no checkpoint yet"));
}

TEST(Rollback, DoesNotTakeACheckpointOfWeightsOnly) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.str());
  options.max_epochs = 1;
  options.engine.loss_guard.nan_policy = "rollback";
  options.callbacks = {
      levin::model_checkpoint({.save_weights_only = true, .every_n_train_steps = 3})};
  const auto module = std::make_shared<Injected>();
  module->bad = {7};
  EXPECT_THAT(error_of([&] {
                levin::Trainer(options).fit(module,
                                            levin::DataLoader(dataset(40), {.batch_size = 2}));
              }),
              HasSubstr("this run has saved no checkpoint yet"));
}

TEST(Rollback, OfAResumedRunIsToTheCheckpointThatItResumed) {
  const Scratch scratch;
  Outcome first, resumed, reference;
  train(first, scratch.path() / "first", {.max_epochs = 1});
  resumed.module->bad = {0};
  levin::TrainerOptions options = quiet((scratch.path() / "first").string());
  options.max_epochs = 2;
  options.engine.loss_guard.nan_policy = "rollback";
  options.callbacks = {levin::model_checkpoint({.every_n_train_steps = 3})};
  options.ckpt_path = "last";
  levin::Trainer trainer(options);
  trainer.fit(resumed.module,
              levin::DataLoader(dataset(40), {.batch_size = 2, .shuffle = true, .seed = 3}));
  reference.module->skipped = {20};
  train(reference, scratch.path() / "reference", {});
  expect_same_weights(*resumed.module, *reference.module);
}

TEST(Rollback, IsForTheTrainer) {
  levin::Accelerator accelerator(
      {.cpu = true, .engine = {.loss_guard = {.nan_policy = "rollback"}}});
  EXPECT_THAT(error_of([&] { accelerator.backward(torch::ones({}, torch::requires_grad())); }),
              HasSubstr("accelerator.loss.policy: got the policy rollback"));
}

}  // namespace
}  // namespace rollback_test
