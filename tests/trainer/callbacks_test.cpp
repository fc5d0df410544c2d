#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/early_stopping.h"
#include "levin/trainer/callbacks/learning_rate_monitor.h"
#include "levin/trainer/callbacks/model_checkpoint.h"
#include "levin/trainer/callbacks/model_summary.h"
#include "tests/support/error_of.h"
#include "tests/trainer/small_run.h"

namespace {

using levin::test::error_id;
using namespace small_run;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Logs a given value at each validation.
struct Scored : Net {
  std::vector<double> scores;
  size_t next = 0;
  explicit Scored(std::vector<double> scores) : scores(std::move(scores)) {}
  void on_validation_epoch_start() override { ++next; }
  void validation_step(const levin::Batch&, int64_t) override { log("score", scores.at(next - 1)); }
};

void fit(const std::shared_ptr<levin::Module>& net, levin::TrainerOptions options, int64_t epochs) {
  options.max_epochs = epochs;
  levin::Trainer(options).fit(net, levin::DataLoader(dataset(40), {.batch_size = 8}),
                              levin::DataLoader(dataset(8), {.batch_size = 8}));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ModelCheckpoint, KeepsTheBestAndTheLast) {
  const Scratch root;
  auto options = quiet(root.str());
  auto checkpoint = levin::model_checkpoint({.monitor = "score", .save_top_k = 2, .mode = "max"});
  options.callbacks = {checkpoint};
  fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.9, 0.1, 0.7, 0.2}), options, 5);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"),
              ElementsAre("epoch=1-step=10", "epoch=3-step=20", "epoch=4-step=25", "last"));
  EXPECT_EQ(checkpoint->best_model_score(), 0.9);
  EXPECT_THAT(checkpoint->best_model_path(), HasSubstr("epoch=1-step=10"));
  EXPECT_EQ(fs::canonical(root.str() + "/checkpoints/last").filename(), "epoch=4-step=25");
}

TEST(ModelCheckpoint, ANanIsNeverTheBest) {
  const Scratch root;
  auto options = quiet(root.str());
  auto checkpoint = levin::model_checkpoint({.monitor = "score"});
  options.callbacks = {checkpoint};
  fit(std::make_shared<Scored>(std::vector<double>{std::nan(""), 0.9, std::nan("")}), options, 3);
  EXPECT_EQ(checkpoint->best_model_score(), 0.9);
}

TEST(ModelCheckpoint, NamesHoldMetrics) {
  const Scratch root;
  auto options = quiet(root.str());
  options.callbacks = {levin::model_checkpoint({.filename = "{step}-{score}", .save_top_k = -1})};
  fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.25}), options, 2);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"),
              ElementsAre("last", "step=10-score=0.2500", "step=5-score=0.5000"));
}

TEST(ModelCheckpoint, SavesEveryNSteps) {
  const Scratch root;
  auto options = quiet(root.str());
  options.callbacks = {levin::model_checkpoint({.save_top_k = -1, .every_n_train_steps = 4})};
  fit(std::make_shared<Net>(), options, 2);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"),
              ElementsAre("epoch=0-step=4", "epoch=1-step=10", "epoch=1-step=8", "last"));
}

TEST(ModelCheckpoint, SavesByTime) {
  const Scratch root;
  auto options = quiet(root.str());
  options.callbacks = {
      levin::model_checkpoint({.save_top_k = -1, .train_time_interval = std::chrono::seconds(0)})};
  fit(std::make_shared<Net>(), options, 1);
  EXPECT_EQ(names_in(root.str() + "/checkpoints").size(), 6u);
}

TEST(ModelCheckpoint, WithoutAnyTheTrainerAddsOne) {
  const Scratch root;
  fit(std::make_shared<Net>(), quiet(root.str()), 2);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"), ElementsAre("epoch=1-step=10", "last"));
}

TEST(ModelCheckpoint, WrongOptionsAreRefused) {
  EXPECT_EQ(error_id([&] { levin::model_checkpoint({.mode = "best"}); }),
            "trainer.checkpoint.options");
  EXPECT_EQ(error_id([&] { levin::model_checkpoint({.save_top_k = -2}); }),
            "trainer.checkpoint.options");
  EXPECT_EQ(error_id([&] { levin::model_checkpoint({.filename = "a/b"}); }),
            "trainer.checkpoint.options");
}

TEST(EarlyStopping, EndsTheRunWhenNothingGetsBetter) {
  struct Case {
    std::string name;
    levin::EarlyStoppingOptions options;
    std::vector<double> scores;
    int64_t stopped_epoch;
  };
  for (const Case& one : std::vector<Case>{
           {"patience",
            {.monitor = "score", .patience = 2, .mode = "max"},
            {0.1, 0.2, 0.2, 0.1, 0.3},
            3},
           {"min_delta", {.monitor = "score", .min_delta = 0.5, .patience = 1}, {1.0, 0.9, 0.1}, 1},
           {"finite", {.monitor = "score"}, {1.0, std::nan(""), 0.1}, 1},
           {"good enough", {.monitor = "score", .stopping_threshold = 0.5}, {1.0, 0.4, 0.1}, 1},
           {"diverged", {.monitor = "score", .divergence_threshold = 5.0}, {1.0, 2.0, 6.0}, 2},
           {"never", {.monitor = "score"}, {3.0, 2.0, 1.0}, -1}}) {
    auto options = quiet(".");
    options.enable_checkpointing = false;
    auto stopping = levin::early_stopping(one.options);
    options.callbacks = {stopping};
    fit(std::make_shared<Scored>(one.scores), options, static_cast<int64_t>(one.scores.size()));
    EXPECT_EQ(stopping->stopped_epoch(), one.stopped_epoch) << one.name;
  }
  EXPECT_EQ(error_id([&] { levin::early_stopping({}); }), "trainer.early_stopping");
  EXPECT_EQ(error_id([&] { levin::early_stopping({.monitor = "a", .mode = "up"}); }),
            "trainer.early_stopping");
}

TEST(EarlyStopping, MinEpochsHoldItBack) {
  auto options = quiet(".");
  options.enable_checkpointing = false;
  options.min_epochs = 4;
  options.callbacks = {levin::early_stopping({.monitor = "score", .patience = 1})};
  auto net = std::make_shared<Scored>(std::vector<double>{1, 1, 1, 1, 1, 1});
  fit(net, options, 6);
  EXPECT_EQ(net->next, 4u);
}

TEST(LearningRateMonitor, LogsTheScheduleWithTheRows) {
  auto options = quiet(".");
  options.enable_checkpointing = false;
  auto recorder = std::make_shared<Recorder>();
  options.logger = recorder;
  options.log_every_n_steps = 1;
  options.callbacks = {levin::learning_rate_monitor()};
  fit(std::make_shared<Net>(), options, 1);
  std::vector<double> rates;
  for (const auto& row : recorder->rows) {
    if (row.name == "lr-adamw") rates.push_back(row.value);
  }
  ASSERT_EQ(rates.size(), 5u);
  EXPECT_NEAR(rates[0], 1e-2 / 3, 1e-12);
  EXPECT_NEAR(rates[2], 1e-2, 1e-12);
}

TEST(ModelSummary, ListsThePartsAndTheirParameters) {
  const Net net;
  const std::string text = levin::summarize(net, {.max_depth = 2});
  EXPECT_THAT(text, HasSubstr("net.0"));
  EXPECT_THAT(text, HasSubstr("Linear"));
  EXPECT_THAT(text, HasSubstr("99 parameters, 99 of them trainable"));
}

}  // namespace
