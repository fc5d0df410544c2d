#include "levin/trainer/callbacks/callbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <map>

#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "tests/support/divided.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace {

using levin::test::error_id;
using namespace small_run;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Logs a given value at each validation.
struct Scored : Net {
  std::vector<double> scores;
  size_t next = 0;
  explicit Scored(std::vector<double> scores) : scores(std::move(scores)) {}
  void on_validation_epoch_start() override { ++next; }
  void validation_step(const levin::Batch&, int64_t) override { log("score", scores.at(next - 1)); }
};

/// "" where both have the same tensors.
std::string off_by(const levin::State& a, const levin::State& b) {
  if (a.values().size() != b.values().size()) return "other names";
  for (const auto& [name, value] : b.values()) {
    if (!torch::equal(a.tensor(name), b.tensor(name))) return name;
  }
  return "";
}

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

TEST(ModelCheckpoint, TheBestIsLoadedAtTheEnd) {
  for (const std::string strategy : {"single", "ddp", "fsdp"}) {
    const auto words = levin::test::run_world(
        strategy == "single" ? 1 : 2, [&](int64_t, const fs::path& root) -> std::string {
          auto options = quiet(root.string());
          options.strategy = strategy;
          auto best = levin::model_checkpoint(
              {.monitor = "score", .mode = "max", .load_best_at_end = true});
          auto net = std::make_shared<Scored>(std::vector<double>{0.5, 0.9, 0.1});
          options.callbacks = {best};
          fit(net, options, 3);
          const levin::State loaded = levin::full(*net);
          if (best->best_model_path().find("epoch=1") == std::string::npos) return "not the best";
          if (const auto name = off_by(loaded, levin::load_weights(best->best_model_path()));
              !name.empty()) {
            return name + " is not of the best";
          }
          if (off_by(loaded, levin::load_weights(best->last_model_path())).empty()) return "last";
          return "";
        });
    EXPECT_THAT(words, ::testing::Each("")) << strategy;
  }
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

/// Logs a given value of each training epoch, and another of its validation.
struct ScoredByEpoch : Net {
  std::vector<double> scores;
  explicit ScoredByEpoch(std::vector<double> scores) : scores(std::move(scores)) {}
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    log("score", scores.at(static_cast<size_t>(current_epoch())),
        {.on_step = false, .on_epoch = true});
    return Net::training_step(batch, index);
  }
};

TEST(ModelCheckpoint, RanksByTheEpochThatEndedBesideAValidation) {
  const Scratch root;
  auto options = quiet(root.str());
  auto checkpoint = levin::model_checkpoint({.monitor = "score", .save_last = false});
  options.callbacks = {checkpoint};
  fit(std::make_shared<ScoredByEpoch>(std::vector<double>{3.0, 1.0, 2.0}), options, 3);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"), ElementsAre("epoch=1-step=10", "last"));
  EXPECT_EQ(checkpoint->best_model_score(), 1.0);
}

TEST(EarlyStopping, ChecksTheEpochThatEndedBesideAValidation) {
  auto options = quiet(".");
  options.enable_checkpointing = false;
  auto stopping = levin::early_stopping({.monitor = "score", .patience = 2});
  options.callbacks = {stopping};
  fit(std::make_shared<ScoredByEpoch>(std::vector<double>{3.0, 1.0, 2.0, 2.0, 0.5}), options, 5);
  EXPECT_EQ(stopping->stopped_epoch(), 3);
  EXPECT_EQ(stopping->best_score(), 1.0);
}

TEST(EarlyStopping, ChecksEachOfSeveralValidations) {
  auto options = quiet(".");
  options.enable_checkpointing = false;
  options.val_check_interval = 0.4;  // twice in an epoch of five batches
  auto net = std::make_shared<Scored>(std::vector<double>{1, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0});
  auto stopping = levin::early_stopping({.monitor = "score", .patience = 2});
  options.callbacks = {stopping};
  fit(net, options, 3);
  EXPECT_EQ(stopping->stopped_epoch(), 1);
  EXPECT_EQ(net->next, 4U);
}

TEST(ModelCheckpoint, WithNoneOfTheBestToKeepThereIsNoBest) {
  const Scratch root;
  for (const char* monitor : {"", "score"}) {
    auto options = quiet(root.str());
    auto checkpoint = levin::model_checkpoint({.monitor = monitor, .save_top_k = 0});
    options.callbacks = {checkpoint};
    fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.9}), options, 2);
    EXPECT_EQ(checkpoint->best_model_path(), "");
    EXPECT_EQ(checkpoint->best_model_score(), std::nullopt);
    EXPECT_THAT(names_in(root.str() + "/checkpoints"), ElementsAre("epoch=1-step=10", "last"));
    fs::remove_all(root / "checkpoints");
  }
}

TEST(ModelCheckpoint, WhatIsSavedAtTheEndIsNotRanked) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_steps = 7;  // inside the second epoch, which has no score then
  auto checkpoint = levin::model_checkpoint({.monitor = "score", .save_top_k = 3});
  options.callbacks = {checkpoint};
  fit(std::make_shared<Scored>(std::vector<double>{0.5}), options, -1);
  EXPECT_THAT(checkpoint->best_model_path(), HasSubstr("epoch=0-step=5"));
  EXPECT_THAT(checkpoint->last_model_path(), HasSubstr("epoch=1-step=7"));
}

TEST(ModelCheckpoint, OneNameForSeveralIsNumbered) {
  const Scratch root;
  auto options = quiet(root.str());
  auto checkpoint =
      levin::model_checkpoint({.filename = "net", .monitor = "score", .save_top_k = 2});
  options.callbacks = {checkpoint};
  fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.3, 0.1, 0.2}), options, 4);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"), ElementsAre("last", "net", "net-v1"));
  const auto step_of = [&](const std::string& folder) {
    return levin::load_checkpoint(folder).training.child("progress").integer("global_step");
  };
  EXPECT_EQ(step_of(checkpoint->best_model_path()), 15);
  EXPECT_EQ(step_of(checkpoint->last_model_path()), 20);
}

TEST(ModelCheckpoint, TwoInOneFolderLeaveEachOtherTheirs) {
  const Scratch root;
  auto options = quiet(root.str());
  auto best = levin::model_checkpoint({.monitor = "score"});
  auto newest = levin::model_checkpoint({.every_n_train_steps = 5});
  options.callbacks = {best, newest};
  fit(std::make_shared<Scored>(std::vector<double>{0.1, 0.9, 0.8}), options, 3);
  EXPECT_TRUE(fs::exists(best->best_model_path()));
  EXPECT_EQ(levin::load_checkpoint(best->best_model_path())
                .training.child("progress")
                .integer("global_step"),
            5);
  EXPECT_TRUE(fs::exists(newest->best_model_path()));
}

TEST(ModelCheckpoint, ASaveByStepsIsRankedByTheValidationThatFollows) {
  const Scratch root;
  auto options = quiet(root.str());
  auto checkpoint =
      levin::model_checkpoint({.monitor = "score", .save_last = false, .every_n_train_steps = 5});
  options.callbacks = {checkpoint};
  // Each epoch's validation follows a step that is due.
  fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.1, 0.9}), options, 3);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"), ElementsAre("epoch=1-step=10", "last"));
  EXPECT_EQ(checkpoint->best_model_score(), 0.1);
}

TEST(ModelCheckpoint, ASaveByStepsWaitsForTheFirstValidation) {
  const Scratch root;
  auto options = quiet(root.str());
  options.callbacks = {levin::model_checkpoint(
      {.monitor = "score", .save_last = false, .save_top_k = -1, .every_n_train_steps = 3})};
  fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.1}), options, 2);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"),
              ElementsAre("epoch=0-step=5", "epoch=1-step=6", "epoch=1-step=9", "last"));
}

TEST(ModelCheckpoint, NamesTakeFormats) {
  const Scratch root;
  auto options = quiet(root.str());
  options.callbacks = {
      levin::model_checkpoint({.filename = "{epoch:02d}-{score:.2f}", .save_top_k = -1})};
  fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.25}), options, 2);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"),
              ElementsAre("epoch=00-score=0.50", "epoch=01-score=0.25", "last"));
  EXPECT_EQ(error_id([] { levin::model_checkpoint({.filename = "{score:d}"}); }),
            "trainer.checkpoint.options");
}

TEST(ModelCheckpoint, AResumedRunLeavesTheCheckpointsOfTheRunBefore) {
  const Scratch root;
  const auto train = [&](int64_t version, const std::string& from, std::vector<double> scores) {
    auto options = quiet(root.str());
    auto checkpoint = levin::model_checkpoint(
        {.dirpath = root.str() + "/" + std::to_string(version), .monitor = "score"});
    options.callbacks = {checkpoint};
    options.ckpt_path = from;
    fit(std::make_shared<Scored>(std::move(scores)), options, version + 1);
    return checkpoint;
  };
  train(0, "", {0.5});
  const auto first = train(1, root.str() + "/0/last", {0.9});
  EXPECT_THAT(first->best_model_path(), HasSubstr("/0/epoch=0-step=5"));  // one ranking
  const auto second = train(2, root.str() + "/1/last", {0.1});
  EXPECT_THAT(second->best_model_path(), HasSubstr("/2/epoch=2-step=15"));
  EXPECT_THAT(names_in(root.str() + "/0"), ElementsAre("epoch=0-step=5", "last"));
  EXPECT_TRUE(fs::exists(root / "1/last"));
}

TEST(ModelCheckpoint, ASecondFitIsSavedAsTheFirst) {
  const Scratch root;
  auto options = quiet(root.str());
  options.callbacks = {levin::model_checkpoint({})};
  options.max_epochs = 1;
  levin::Trainer trainer(options);
  for (int i = 0; i < 2; ++i) {
    fs::remove_all(root / "checkpoints");
    trainer.fit(std::make_shared<Net>(), levin::DataLoader(dataset(40), {.batch_size = 8}));
    EXPECT_TRUE(fs::exists(root / "checkpoints/last")) << i;
  }
}

TEST(ModelCheckpoint, NamesTakeValuesAloneAndNoFoldersOfMetricNames) {
  struct Slashed : Net {
    at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
      log("train/score", 0.25, {.on_step = false, .on_epoch = true});
      return Net::training_step(batch, index);
    }
  };
  for (const bool inserts : {true, false}) {
    const Scratch root;
    auto options = quiet(root.str());
    options.callbacks = {levin::model_checkpoint({.filename = "e{epoch:02d}-s={train/score:.2f}",
                                                  .monitor = "train/score",
                                                  .auto_insert_metric_name = inserts})};
    fit(std::make_shared<Slashed>(), options, 1);
    EXPECT_THAT(names_in(root.str() + "/checkpoints"),
                ElementsAre(inserts ? "eepoch=00-s=train_score=0.25" : "e00-s=0.25", "last"));
  }
}

TEST(ModelCheckpoint, ReplacesTheOneOfItsNameWithoutAVersionCounter) {
  const Scratch root;
  const auto run = [&](bool counts, int64_t epochs) {
    auto options = quiet(root.str());
    options.callbacks = {levin::model_checkpoint(
        {.filename = "newest", .save_top_k = -1, .enable_version_counter = counts})};
    fit(std::make_shared<Net>(), options, epochs);
  };
  const auto step = [&] {
    return levin::load_checkpoint(root / "checkpoints/newest")
        .training.child("progress")
        .integer("global_step");
  };
  run(false, 3);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"), ElementsAre("last", "newest"));
  EXPECT_EQ(step(), 15);
  run(false, 1);  // another run's, too
  EXPECT_EQ(step(), 5);
  run(true, 2);
  EXPECT_THAT(names_in(root.str() + "/checkpoints"),
              ElementsAre("last", "newest", "newest-v1", "newest-v2"));
  EXPECT_EQ(step(), 5);
  // A folder that is no checkpoint stays.
  fs::remove_all(root / "checkpoints/newest");
  fs::create_directories(root / "checkpoints/newest");
  levin::test::put(root / "checkpoints/newest/notes", "mine");
  EXPECT_THAT(levin::test::error_of([&] { run(false, 1); }), HasSubstr("files.replace"));
  EXPECT_EQ(levin::test::get(root / "checkpoints/newest/notes"), "mine");
}

TEST(ModelCheckpoint, SaysEachSaveWithItsValueIfItIsTold) {
  for (const bool verbose : {true, false}) {
    const Scratch root;
    auto options = quiet(root.str());
    options.callbacks = {
        levin::model_checkpoint({.monitor = "score", .verbose = verbose, .save_last = false})};
    std::string all;
    const auto before = levin::log::set_sink(
        [&](levin::log::Level, std::string_view line) { all += std::string(line) + "\n"; });
    fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.75}), options, 2);
    levin::log::set_sink(before);
    EXPECT_EQ(
        all.find("epoch 0, step 5 with score = 0.5 (best 0.5): saved in ") != std::string::npos,
        verbose);
    EXPECT_EQ(
        all.find("step 10 with score = 0.75 (best 0.5): not among the best 1") != std::string::npos,
        verbose);
  }
}

/// Weights alone, of a run of one epoch and an average of its weights.
std::shared_ptr<levin::ModelCheckpoint> save_weights_only(const std::string& root,
                                                          bool async = false) {
  auto options = quiet(root);
  auto keep = levin::model_checkpoint({.dirpath = root + "/weights",
                                       .monitor = "score",
                                       .save_weights_only = true,
                                       .async_save = async});
  options.callbacks = {keep, levin::model_checkpoint({.dirpath = root + "/full"}),
                       levin::weight_averaging({.decay = 0.5})};
  fit(std::make_shared<Scored>(std::vector<double>{0.5}), options, 1);
  return keep;
}

TEST(ModelCheckpoint, WeightsAloneEvaluateButDoNotResume) {
  for (const bool async : {false, true}) {
    const Scratch root;
    const auto keep = save_weights_only(root.str(), async);
    const std::string last = root.str() + "/weights/last";
    EXPECT_EQ(off_by(levin::load_weights(last), levin::load_weights(root.str() + "/full/last")),
              "");
    const levin::State training = levin::load_checkpoint(last).training;
    EXPECT_FALSE(training.contains("optimizers"));
    EXPECT_EQ(training.child("progress").integer("global_step"), 5);
    EXPECT_EQ(training.child("callbacks").values().size(), 1U);
    EXPECT_TRUE(levin::load_checkpoint(root.str() + "/full/last").training.contains("optimizers"));
    auto options = quiet(root.str());
    levin::Trainer trainer(options);
    const auto net = std::make_shared<Scored>(std::vector<double>{0.1, 0.2, 0.3});
    const levin::DataLoader data(dataset(8), {.batch_size = 8});
    EXPECT_EQ(trainer.validate(net, data, {.ckpt_path = last}).at("score"), 0.1);
    EXPECT_EQ(off_by(levin::module_state(*net), levin::load_weights(last)), "");
    // A later program finds the best one by its state.
    options.callbacks = {
        levin::model_checkpoint({.dirpath = root.str() + "/weights", .monitor = "score"})};
    levin::Trainer later(options);
    EXPECT_EQ(later.validate(net, data, {.ckpt_path = "best"}).at("score"), 0.2);
    options.ckpt_path = last;
    EXPECT_THAT(levin::test::error_of([&] { fit(net, options, 2); }),
                HasSubstr("accelerator.weights_only: the checkpoint has weights only"));
    EXPECT_EQ(fs::canonical(last), fs::canonical(keep->best_model_path()));
  }
}

TEST(ModelCheckpoint, WeightsAloneOfSeveralRanksAreWhole) {
  for (const char* strategy : {"ddp", "fsdp"}) {
    const Scratch root;
    const auto words = levin::test::run_world(2, [&](int64_t, const fs::path&) -> std::string {
      auto options = quiet(root.str());
      options.strategy = strategy;
      options.callbacks = {
          levin::model_checkpoint({.dirpath = root.str(), .save_weights_only = true})};
      const auto net = std::make_shared<Net>(0.0);
      options.max_epochs = 1;
      levin::Trainer(options).fit(net, levin::DataLoader(dataset(40), {.batch_size = 8}));
      return off_by(levin::load_weights(root / "last"), levin::full(*net));
    });
    EXPECT_THAT(words, ::testing::Each("")) << strategy;
    EXPECT_FALSE(levin::load_checkpoint(root / "last").training.contains("optimizers"));
  }
}

TEST(ModelCheckpoint, WrongOptionsAreRefused) {
  EXPECT_EQ(
      error_id([&] { levin::model_checkpoint({.every_n_train_steps = 4, .every_n_epochs = 2}); }),
      "trainer.checkpoint.options");
  EXPECT_EQ(error_id([&] {
              levin::model_checkpoint(
                  {.every_n_train_steps = 4, .train_time_interval = std::chrono::seconds(1)});
            }),
            "trainer.checkpoint.options");
  EXPECT_EQ(error_id([&] { levin::model_checkpoint({.filename = "last"}); }),
            "trainer.checkpoint.options");
  EXPECT_EQ(error_id([&] { levin::model_checkpoint({.mode = "best"}); }),
            "trainer.checkpoint.options");
  EXPECT_EQ(error_id([&] { levin::model_checkpoint({.save_top_k = -2}); }),
            "trainer.checkpoint.options");
  for (const char* filename : {"a/b", "{epoch", "{}", "{epoch:.2q}", "{val/loss:/>9.2f}", ".."}) {
    EXPECT_EQ(error_id([&] { levin::model_checkpoint({.filename = filename}); }),
              "trainer.checkpoint.options")
        << filename;
  }
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
           {"never", {.monitor = "score"}, {3.0, 2.0, 1.0}, -1},
           {"a NaN is no improvement",
            {.monitor = "score", .patience = 2, .check_finite = false},
            {1.0, kNan, kNan, 0.5},
            2},
           {"a NaN at the beginning",
            {.monitor = "score", .patience = 2, .mode = "max", .check_finite = false},
            {kNan, kNan, 1.0, 2.0},
            1},
           {"better than a NaN",
            {.monitor = "score", .patience = 2, .check_finite = false},
            {kNan, 3.0, kNan, 2.0, kNan, kNan, 1.0},
            5},
           {"infinity is no improvement",
            {.monitor = "score", .patience = 1, .check_finite = false},
            {kInfinity, 1.0},
            0},
           {"nothing is better than minus infinity",
            {.monitor = "score", .patience = 1, .check_finite = false},
            {-kInfinity, -kInfinity, 1.0},
            1},
           {"a NaN is neither good enough nor too bad",
            {.monitor = "score",
             .patience = 3,
             .mode = "max",
             .check_finite = false,
             .stopping_threshold = 0.5,
             .divergence_threshold = -5.0},
            {0.1, kNan, 0.2, 0.6, 1.0},
            3},
           {"diverged downwards",
            {.monitor = "score", .mode = "max", .divergence_threshold = 0.0},
            {1.0, -1.0, 2.0},
            1},
           {"no patience", {.monitor = "score", .patience = 0}, {2.0, 1.0, 1.0, 0.5}, 2}}) {
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

TEST(EarlyStopping, AMissingValueIsAnErrorOrLeavesTheCheckOut) {
  for (const bool verbose : {false, true}) {
    for (const bool strict : {true, false}) {
      auto options = quiet(".");
      options.enable_checkpointing = false;
      auto stopping = levin::early_stopping(
          {.monitor = "other", .patience = 1, .verbose = verbose, .strict = strict});
      options.callbacks = {stopping};
      std::string all;
      const auto before = levin::log::set_sink(
          [&](levin::log::Level, std::string_view line) { all += std::string(line) + "\n"; });
      const std::string error = levin::test::error_of(
          [&] { fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.5, 0.5}), options, 3); });
      levin::log::set_sink(before);
      EXPECT_THAT(error, HasSubstr(strict ? "trainer.monitor" : "no error"));
      EXPECT_EQ(stopping->stopped_epoch(), -1);
      EXPECT_EQ(all.find("early_stopping: nothing named 'other' was logged") != std::string::npos,
                verbose && !strict);
    }
  }
}

TEST(EarlyStopping, LogsOnRankZeroOnlyIfItIsTold) {
  for (const bool only : {false, true}) {
    const auto words = levin::test::run_world(2, [&](int64_t, const fs::path& folder) {
      ::setenv("LEVIN_LOG_ALL_RANKS", "1", 1);
      auto options = quiet(folder.string());
      options.enable_checkpointing = false;
      options.callbacks = {levin::early_stopping(
          {.monitor = "score", .patience = 1, .verbose = true, .log_rank_zero_only = only})};
      std::string all;
      const auto before = levin::log::set_sink(
          [&](levin::log::Level, std::string_view line) { all += std::string(line) + "\n"; });
      fit(std::make_shared<Scored>(std::vector<double>{0.5, 0.5, 0.5}), options, 3);
      levin::log::set_sink(before);
      const bool told =
          all.find("early_stopping: score = 0.5, best 0.5") != std::string::npos &&
          all.find("the run stops because score did not improve") != std::string::npos;
      return std::string(told ? "told" : "silent");
    });
    EXPECT_THAT(words, ElementsAre("told", only ? "silent" : "told"));
  }
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

/// What was logged under that name: (step, value).
std::vector<std::pair<int64_t, double>> logged(const Recorder& recorder, const std::string& name) {
  std::vector<std::pair<int64_t, double>> values;
  for (const auto& row : recorder.rows) {
    if (row.name == name) values.emplace_back(row.step, row.value);
  }
  return values;
}

/// Notes the rate that each step is taken with, and what callbacks see of it after the step.
struct Rates : levin::Callback {
  std::vector<double> used, seen;
  std::string state_key() const override { return "rates"; }
  void on_before_optimizer_step(levin::Trainer& trainer, levin::Module&) override {
    used.push_back(trainer.optimizers().front().learning_rate());
  }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    const auto metrics = trainer.callback_metrics();
    const auto rate = metrics.find("lr-AdamW");
    seen.push_back(rate == metrics.end() ? -1.0 : rate->second);
  }
};

TEST(LearningRateMonitor, LogsTheRateThatEachStepUsed) {
  auto options = quiet(".");
  options.enable_checkpointing = false;
  auto recorder = std::make_shared<Recorder>();
  auto rates = std::make_shared<Rates>();
  options.logger = recorder;
  options.log_every_n_steps = 2;
  options.callbacks = {levin::learning_rate_monitor(), rates};
  fit(std::make_shared<Net>(), options, 1);
  ASSERT_EQ(rates->used.size(), 5U);
  EXPECT_NE(rates->used[1], rates->used[2]);
  EXPECT_EQ(logged(*recorder, "lr-AdamW"),
            (std::vector<std::pair<int64_t, double>>{{2, rates->used[1]}, {4, rates->used[3]}}));
  EXPECT_EQ(rates->seen, (std::vector<double>{-1.0, rates->used[1], rates->used[1], rates->used[3],
                                              rates->used[3]}));
}

TEST(LearningRateMonitor, LogsOnceForAGroupOfBatches) {
  auto options = quiet(".");
  options.enable_checkpointing = false;
  auto recorder = std::make_shared<Recorder>();
  auto rates = std::make_shared<Rates>();
  options.logger = recorder;
  options.log_every_n_steps = 1;
  options.accumulate_grad_batches = 2;
  options.callbacks = {levin::learning_rate_monitor(), rates};
  fit(std::make_shared<Net>(), options, 1);
  EXPECT_EQ(logged(*recorder, "lr-AdamW"),
            (std::vector<std::pair<int64_t, double>>{
                {1, rates->used[0]}, {2, rates->used[1]}, {3, rates->used[2]}}));
}

TEST(LearningRateMonitor, NamesOptimizersAndGroupsAsLightning) {
  struct Several : Net {
    levin::OptimizerConfig configure_optimizers() override {
      return {levin::optim::adam({.lr = 0.1, .betas = {0.8, 0.9}})
                  .parameters("net.0.*")
                  .group("*.bias", {.lr = 0.2, .weight_decay = 0.5}),
              levin::optim::adam({.lr = 0.3}).parameters("net.1.*"),
              levin::optim::sgd({.lr = 0.4, .momentum = 0.7}).parameters("net.4.*")};
    }
  };
  auto options = quiet(".");
  options.enable_checkpointing = false;
  auto recorder = std::make_shared<Recorder>();
  options.logger = recorder;
  options.callbacks = {levin::learning_rate_monitor({.logging_interval = "epoch",
                                                     .log_momentum = true,
                                                     .log_weight_decay = true,
                                                     .log_key_prefix = "optim/"})};
  fit(std::make_shared<Several>(), options, 2);
  const std::map<std::string, double> wanted = {{"optim/lr-Adam/pg1", 0.2},
                                                {"optim/lr-Adam/pg1-momentum", 0.8},
                                                {"optim/lr-Adam/pg2", 0.1},
                                                {"optim/lr-Adam/pg1-weight_decay", 0.5},
                                                {"optim/lr-Adam-1", 0.3},
                                                {"optim/lr-Adam-1-momentum", 0.9},
                                                {"optim/lr-SGD", 0.4},
                                                {"optim/lr-SGD-momentum", 0.7},
                                                {"optim/lr-SGD-weight_decay", 0.0}};
  for (const auto& [name, value] : wanted) {
    EXPECT_EQ(logged(*recorder, name),
              (std::vector<std::pair<int64_t, double>>{{0, value}, {5, value}}))
        << name;
  }
  EXPECT_EQ(error_id([] { levin::learning_rate_monitor({.logging_interval = "batch"}); }),
            "trainer.learning_rate_monitor");
}

TEST(ModelSummary, ListsThePartsAndTheirParameters) {
  const Net net;
  const std::string text = levin::summarize(net, {.max_depth = 2});
  EXPECT_THAT(text, HasSubstr("net.0"));
  EXPECT_THAT(text, HasSubstr("Linear"));
  EXPECT_THAT(text, HasSubstr("99 parameters, 99 of them trainable"));
}

TEST(ModelSummary, CountsWholeParametersWhereRanksHaveParts) {
  const auto words = levin::test::run_world(2, [](int64_t, const auto&) {
    const Net net;
    const levin::comm::DeviceMesh mesh(levin::test::connect(), {{"dp", 2}});
    const auto rows = levin::test::divide(levin::named_parameters(net), mesh);
    return levin::summarize(net);
  });
  EXPECT_THAT(words, ::testing::Each(HasSubstr("99 parameters, 99 of them trainable")));
}

}  // namespace
