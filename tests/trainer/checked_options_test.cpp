// Options of callbacks and loggers that cannot work are found before the first batch, and those that do nothing in a
// run are told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/callbacks/checkpoint_name.h"
#include "levin/trainer/run/limits.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"
#include "tests/trainer/small_run.h"

namespace checked_options_test {
namespace {

using namespace small_run;  // NOLINT
using levin::detail::checkpoint_name;
using levin::test::error_id;
using levin::test::error_of;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(CheckpointNames, AreAsPythonsFormatWritesThem) {
  const levin::detail::CheckpointMoment moment = {
      .epoch = 3, .step = 120, .metrics = {{"val_loss", 0.12345}}};
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{epoch}-{step}", "epoch=3-step=120"},
      {"{epoch:02d}", "epoch=03"},
      {"{step:.2f}", "step=120.00"},
      {"{epoch:e}", "epoch=3.000000e+00"},
      {"{val_loss:.2f}-{val_loss:10.3e}", "val_loss=0.12-val_loss= 1.235e-01"},
      {"{val_loss}", "val_loss=0.1235"},
      {"{val_acc:.2f}", "val_acc=nan"},
      {"plain", "plain"},
  };
  for (const auto& [pattern, name] : cases) EXPECT_EQ(checkpoint_name(pattern, moment), name);
}

TEST(CheckedOptions, ABadNameOfCheckpointsIsFoundWhenTheCallbackIsMade) {
  for (const char* filename :
       {"{val_loss:.3d}", "{epoch:.3d}", "{step:s}", "{epoch", "{epoch}-{step", "{a{epoch}}", "{}",
        "{val_loss:}}.", "{val_loss:x}", "{:.2f}", "a/b", "", "last"}) {
    const std::string id = error_id([&] { levin::model_checkpoint({.filename = filename}); });
    const bool is_fine = std::string(filename) == "{val_loss:}}.";  // a '}' of the name
    EXPECT_EQ(id, is_fine ? "no error" : "trainer.checkpoint.options") << filename;
  }
}

TEST(CheckedOptions, WhatCallbacksCannotUseIsFoundWhenTheyAreMade) {
  using levin::early_stopping;
  using levin::model_checkpoint;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_id([] { model_checkpoint({.train_time_interval = std::chrono::seconds(-1)}); }),
            "trainer.checkpoint.options");
  EXPECT_EQ(error_id([&] { early_stopping({.monitor = "a", .stopping_threshold = nan}); }),
            "trainer.early_stopping");
  EXPECT_EQ(error_id([&] { early_stopping({.monitor = "a", .divergence_threshold = nan}); }),
            "trainer.early_stopping");
  EXPECT_EQ(error_id([&] { early_stopping({.monitor = "a", .min_delta = nan}); }),
            "trainer.early_stopping");
  EXPECT_EQ(error_id([] { levin::model_summary({.max_depth = -2}); }), "trainer.options");
  EXPECT_EQ(error_id([] { levin::csv_logger({.version = -1}); }), "observe.logger.dir");
  EXPECT_EQ(error_id([] { levin::tensorboard_logger({.version = -1}); }), "observe.logger.dir");
}

struct Counted : Net {
  int64_t steps = 0;
  at::Tensor training_step(const levin::Batch& batch) override {
    ++steps;
    return Net::training_step(batch);
  }
};

TEST(CheckedOptions, AFolderThatCannotHoldCheckpointsIsFoundBeforeTheFirstBatch) {
  const Scratch root;
  levin::test::put(root / "file", "");
  auto options = quiet(root.str());
  options.max_epochs = 1;
  options.callbacks = {levin::model_checkpoint({.dirpath = (root / "file/inside").string()})};
  const auto net = std::make_shared<Counted>();
  const levin::DataLoader loader(dataset(8), {.batch_size = 4});
  EXPECT_THAT(
      error_of([&] { levin::Trainer(options).fit(net, loader); }),
      HasSubstr("trainer.checkpoint.options: got dirpath = '" + (root / "file/inside").string() +
                "' for checkpoints, but " + (root / "file").string() + " is no folder"));
  EXPECT_EQ(net->steps, 0);
}

/// What a run of 2 epochs of 5 batches says.
std::string said(levin::TrainerOptions options, bool validates = true) {
  const Scratch root;
  const auto quiet_ones = quiet(root.str());
  options.default_root_dir = root.str();
  options.enable_progress_bar = options.enable_model_summary = false;
  options.logger = false;
  if (options.max_epochs.value_or(0) == 0) options.max_epochs = 2;
  const levin::DataLoader loader(dataset(20), {.batch_size = 4});
  CaptureStderr();
  const std::string error = error_of([&] {
    levin::Trainer(options).fit(std::make_shared<Net>(), loader,
                                validates ? std::optional(loader) : std::nullopt);
  });
  return GetCapturedStderr() + error;
}

levin::TrainerOptions with(std::shared_ptr<levin::Callback> callback) {
  levin::TrainerOptions options;
  options.callbacks = {std::move(callback)};
  return options;
}

TEST(ToldOptions, IntervalsThatNeverEndAreToldBeforeTheFirstBatch) {
  using levin::model_checkpoint;
  EXPECT_THAT(said({.check_val_every_n_epoch = 3}),
              HasSubstr("check_val_every_n_epoch = 3, but the run has 2 epochs, so it never "
                        "validates"));
  EXPECT_THAT(said({.check_val_every_n_epoch = 2}), Not(HasSubstr("never")));
  EXPECT_THAT(said({.check_val_every_n_epoch = 3}, /*validates=*/false), Not(HasSubstr("never")));
  EXPECT_THAT(said(with(model_checkpoint({.every_n_train_steps = 11}))),
              HasSubstr("every_n_train_steps = 11, but the run has 10 steps, so it saves only at "
                        "the end of the run"));
  EXPECT_THAT(said(with(model_checkpoint({.save_last = false, .every_n_epochs = 3}))),
              HasSubstr("every_n_epochs = 3, but the run has 2 epochs, so it never saves"));
  EXPECT_THAT(said(with(model_checkpoint({.save_on_train_epoch_end = false})), false),
              HasSubstr("save_on_train_epoch_end = false, but the run has no validation"));
  EXPECT_THAT(said(with(model_checkpoint({.every_n_train_steps = 10}))), Not(HasSubstr("alone")));
  EXPECT_THAT(
      said(with(levin::early_stopping({.monitor = "loss", .check_on_train_epoch_end = false})),
           false),
      HasSubstr("early_stopping: it checks 'loss' after each validation, but this run has no "
                "validation"));
}

TEST(ToldOptions, AMonitorThatIsSpeltNearlyLikeALoggedNameIsToldAfterTheFirstStep) {
  const std::string wrong = said(with(levin::early_stopping({.monitor = "val_ac"})));
  EXPECT_THAT(wrong, HasSubstr("nothing named 'val_ac' has been logged so far, but 'val_acc' has"));
  EXPECT_THAT(wrong, HasSubstr("trainer.monitor"));  // an epoch later
  EXPECT_THAT(said(with(levin::model_checkpoint({.monitor = "los_epoch"}))),
              HasSubstr("nothing named 'los_epoch' has been logged so far, but 'loss_epoch' has"));
  for (const char* name : {"val_acc", "loss", "loss_epoch", "loss_step"}) {
    EXPECT_THAT(said(with(levin::early_stopping({.monitor = name}))), Not(HasSubstr("so far")))
        << name;
  }
  // What a validation will log nobody knows before there was one.
  levin::TrainerOptions unknown = with(levin::early_stopping({.monitor = "val_acc"}));
  unknown.num_sanity_val_steps = 0;
  EXPECT_THAT(said(unknown), Not(HasSubstr("so far")));
}

TEST(ToldOptions, AnIntervalPastTheEpochOfAStreamIsAnErrorWhereALimitSaysItsLength) {
  const auto of = [](levin::TrainerOptions options, std::optional<int64_t> size) {
    return error_id([&] { levin::detail::resolve_limits(options, size, 3); });
  };
  levin::TrainerOptions options{.limit_train_batches = 5, .val_check_interval = 7};
  EXPECT_EQ(of(options, std::nullopt), "trainer.options");
  EXPECT_EQ(of(options, 10), "trainer.options");
  options.limit_val_batches = 0;  // as Lightning: nothing is to be validated
  EXPECT_EQ(of(options, std::nullopt), "no error");
  EXPECT_EQ(of(options, 10), "no error");
  EXPECT_EQ(levin::detail::resolve_limits(options, 10, 3).val_interval, 6);
  EXPECT_EQ(of({.limit_train_batches = 5, .val_check_interval = 5}, std::nullopt), "no error");
  EXPECT_EQ(of({.val_check_interval = 7}, std::nullopt), "no error");  // nobody knows
}

struct Uncounted : Net {
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

TEST(ToldOptions, AStreamsEpochThatWasNotValidatedIsTold) {
  const auto said_with = [](int64_t interval) {
    const Scratch root;
    auto options = quiet(root.str());
    options.max_epochs = 2;
    options.val_check_interval = interval;
    std::vector<int64_t> all(20);
    std::iota(all.begin(), all.end(), 0);
    const levin::DataLoader stream(
        levin::IterableDatasetPtr(std::make_shared<levin::test::InShards>(
            dataset(20)->get(all), std::vector<int64_t>{20})),
        {.batch_size = 4});
    CaptureStderr();
    levin::Trainer(options).fit(std::make_shared<Uncounted>(), stream,
                                levin::DataLoader(dataset(8), {.batch_size = 4}));
    return GetCapturedStderr();
  };
  EXPECT_THAT(said_with(7), HasSubstr("val_check_interval = 7, but the epoch had 5 batches"));
  EXPECT_THAT(said_with(5), Not(HasSubstr("val_check_interval")));
}

}  // namespace
}  // namespace checked_options_test
