// The Trainer in each precision: it learns, and a resumed run is an uninterrupted one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using ::testing::HasSubstr;

const double kInf = std::numeric_limits<double>::infinity();

struct InPrecision {
  std::string precision;
  bool master_weights = false;
  std::string name = precision;
};

std::ostream& operator<<(std::ostream& out, const InPrecision& setting) {
  return out << setting.name;
}

struct TrainedIn {
  std::shared_ptr<Net> net;
  std::vector<Recorder::Row> rows;
};

/// Ends the run after so many steps, as if it had been interrupted there.
struct InterruptAfter : levin::Callback {
  int64_t step;
  explicit InterruptAfter(int64_t step) : step(step) {}
  std::string state_key() const override { return "stop_after"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == step) trainer.request_stop("interrupted");
  }
};

/// Twelve steps of two batches, or as many, or on from a checkpoint.
TrainedIn train_in(const InPrecision& setting, const std::string& root, int64_t stop_after,
                   const std::string& ckpt_path = "") {
  auto options = quiet(root);
  auto recorder = std::make_shared<Recorder>();
  recorder->folder = root;
  options.accelerator = "cpu";
  options.logger = recorder;
  options.callbacks = {levin::model_checkpoint({.dirpath = root + "/ckpt", .save_last = true}),
                       std::make_shared<InterruptAfter>(stop_after)};
  options.precision = setting.precision;
  options.engine.master_weights = setting.master_weights;
  options.max_epochs = -1;
  options.max_steps = 12;
  options.log_every_n_steps = 1;
  options.accumulate_grad_batches = 2;
  options.gradient_clip_val = 0.5;
  options.engine.scaler = {.init_scale = 4096.0, .growth_interval = 3};
  options.seed = 11;
  levin::Trainer trainer(options);
  auto net = std::make_shared<Net>();
  trainer.fit(net, levin::DataLoader(dataset(64), {.batch_size = 8, .shuffle = true}), std::nullopt,
              {.ckpt_path = ckpt_path});
  return {net, recorder->rows};
}

class TrainerPrecision : public testing::TestWithParam<InPrecision> {};

TEST_P(TrainerPrecision, ResumeEqualsNoInterruption) {
  const Scratch whole_root, part_root;
  const TrainedIn whole = train_in(GetParam(), whole_root.str(), 12);
  train_in(GetParam(), part_root.str(), 5);
  const TrainedIn resumed =
      train_in(GetParam(), part_root.str(), 12, part_root.str() + "/ckpt/last");
  expect_same_weights(*whole.net, *resumed.net);
  ASSERT_FALSE(resumed.rows.empty());
  for (const Recorder::Row& row : resumed.rows) {
    EXPECT_EQ(std::ranges::count(whole.rows, row), 1) << row.name << " at " << row.step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Trainer, TrainerPrecision,
    testing::Values(InPrecision{"64-true"}, InPrecision{"bf16-true"}, InPrecision{"16-true"},
                    InPrecision{"bf16-mixed"}, InPrecision{"16-mixed"},
                    InPrecision{"bf16-true", true, "bf16-true with master weights"}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::ranges::replace_if(name, [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

/// Sees gradients as clipping does.
struct LookingNet : Net {
  double largest = 0;
  void on_before_optimizer_step(levin::OptimizerHandle&) override {
    for (const at::Tensor& parameter : parameters()) {
      if (!parameter.grad().defined()) continue;
      largest = std::max(largest, parameter.grad().abs().max().item<double>());
    }
  }
};

TEST(TrainerPrecision, HooksBeforeTheStepSeeUnscaledGradients) {
  const Scratch root;
  auto options = quiet(root.str());
  options.accelerator = "cpu";
  options.precision = "16-mixed";
  options.max_steps = 3;
  options.enable_checkpointing = false;
  levin::Trainer trainer(options);
  const auto net = std::make_shared<LookingNet>();
  trainer.fit(net, levin::DataLoader(dataset(32), {.batch_size = 8}));
  EXPECT_GT(net->largest, 0.0);
  EXPECT_LT(net->largest, 100.0);
}

/// Its loss is no number in one batch.
struct BadLossNet : Net {
  int64_t bad = 2;
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    const at::Tensor loss = Net::training_step(batch, index);
    return index == bad ? loss * kInf : loss;
  }
};

TEST(NanPolicy, StopNamesTheBatchAndTheEpoch) {
  const Scratch root;
  auto options = quiet(root.str());
  options.accelerator = "cpu";
  options.max_epochs = 2;
  options.engine.loss_guard.nan_policy = "stop";
  levin::Trainer trainer(options);
  const auto net = std::make_shared<BadLossNet>();
  EXPECT_THAT(
      error_of([&] { trainer.fit(net, levin::DataLoader(dataset(32), {.batch_size = 8})); }),
      HasSubstr("accelerator.loss.stop: the loss of batch 2 of epoch 0 is inf"));
}

TEST(NanPolicy, SkipLeavesTheWeightsNumbers) {
  for (const std::string policy : {"off", "skip"}) {
    const Scratch root;
    auto options = quiet(root.str());
    options.accelerator = "cpu";
    options.max_epochs = 1;
    options.engine.loss_guard.nan_policy = policy;
    levin::Trainer trainer(options);
    const auto net = std::make_shared<BadLossNet>();
    trainer.fit(net, levin::DataLoader(dataset(32), {.batch_size = 8}));
    const bool finite = torch::isfinite(net->parameters()[0]).all().item<bool>();
    EXPECT_EQ(finite, policy == "skip");
  }
}

}  // namespace
