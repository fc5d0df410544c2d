// Resume equals no interruption, bit for bit: weights, optimizer, schedule, callbacks, logged
// values.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Setting {
  std::string name;
  int64_t num_workers;
  int64_t accumulate;
  levin::Portion val_check_interval;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) { return out << setting.name; }

struct Outcome {
  std::shared_ptr<Net> net;
  std::vector<Recorder::Row> rows;
  std::string last;  // folder of the newest checkpoint
};

/// Ends the run after so many steps, as if it had been interrupted there.
struct Interrupt : levin::Callback {
  int64_t step;
  explicit Interrupt(int64_t step) : step(step) {}
  std::string state_key() const override { return "interrupt"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == step) trainer.request_stop("interrupted");
  }
};

/// Trains 3 epochs of 13 batches, or to the interruption.
Outcome run(const Setting& setting, const std::string& root, int64_t interrupt_at,
            const std::string& ckpt_path) {
  auto options = quiet(root);
  auto recorder = std::make_shared<Recorder>();
  recorder->folder = root;
  auto checkpoint =
      levin::model_checkpoint({.dirpath = root + "/ckpt", .monitor = "val_acc", .mode = "max"});
  options.logger = recorder;
  options.callbacks = {checkpoint,
                       levin::early_stopping({.monitor = "val_acc", .patience = 50, .mode = "max"}),
                       std::make_shared<Interrupt>(interrupt_at)};
  options.max_epochs = 3;
  options.log_every_n_steps = 1;
  options.accumulate_grad_batches = setting.accumulate;
  options.gradient_clip_val = 0.5;
  options.val_check_interval = setting.val_check_interval;
  options.seed = 11;
  levin::Trainer trainer(options);
  Outcome outcome;
  outcome.net = std::make_shared<Net>();
  const levin::DataLoader train(
      dataset(100), {.batch_size = 8, .shuffle = true, .num_workers = setting.num_workers});
  const levin::DataLoader validation(dataset(40, 6), {.batch_size = 16});
  trainer.fit(outcome.net, train, validation, {.ckpt_path = ckpt_path});
  outcome.rows = recorder->rows;
  outcome.last = checkpoint->last_model_path();
  return outcome;
}

/// The training state without what differs by nature: paths, wall-clock seconds, the step limit.
void strip(levin::State& training) {
  training.erase("options");
  training.erase("callbacks");
  auto progress = training.child("progress");
  progress.erase("seconds");
  training.set("progress", progress);
}

void expect_same_state(const levin::State& a, const levin::State& b, const std::string& path) {
  ASSERT_EQ(a.values().size(), b.values().size()) << path;
  for (const auto& [key, value] : a.values()) {
    const std::string here = path + "/" + key;
    ASSERT_TRUE(b.contains(key)) << here;
    if (std::holds_alternative<levin::State>(value)) {
      expect_same_state(a.child(key), b.child(key), here);
    } else if (std::holds_alternative<at::Tensor>(value)) {
      EXPECT_TRUE(torch::equal(a.tensor(key), b.tensor(key))) << here;
    } else if (std::holds_alternative<double>(value)) {
      EXPECT_EQ(a.number(key), b.number(key)) << here;
    } else if (std::holds_alternative<int64_t>(value)) {
      EXPECT_EQ(a.integer(key), b.integer(key)) << here;
    }
  }
}

/// The values logged at steps after `step`, one for each (step, name).
std::map<std::pair<int64_t, std::string>, double> values_after(
    const std::vector<Recorder::Row>& rows, int64_t step) {
  std::map<std::pair<int64_t, std::string>, double> values;
  for (const auto& row : rows) {
    if (row.step > step) values[{row.step, row.name}] = row.value;
  }
  return values;
}

class Resume : public ::testing::TestWithParam<Setting> {};

TEST_P(Resume, EqualsTheRunThatWasNeverInterrupted) {
  const Setting& setting = GetParam();
  const Scratch whole_root;
  const Outcome whole = run(setting, whole_root.str(), -1, "");
  auto whole_state = levin::load_checkpoint(whole.last).training;
  strip(whole_state);
  const int64_t per_epoch = (13 + setting.accumulate - 1) / setting.accumulate;
  for (const int64_t k : {int64_t{1}, int64_t{2}, per_epoch - 1, per_epoch, per_epoch + 2}) {
    const Scratch root;
    run(setting, root.str(), k, "");
    const Outcome resumed = run(setting, root.str(), -1, root.str() + "/ckpt/last");
    expect_same_weights(*whole.net, *resumed.net);
    auto state = levin::load_checkpoint(resumed.last).training;
    strip(state);
    expect_same_state(whole_state, state, "after step " + std::to_string(k));
    EXPECT_EQ(values_after(whole.rows, k), values_after(resumed.rows, k)) << "after step " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Resume,
                         ::testing::Values(Setting{"plain", 0, 1, 1.0},
                                           Setting{"workers", 2, 1, 1.0},
                                           Setting{"accumulation", 0, 4, 1.0},
                                           Setting{"all", 2, 3, 0.4}),
                         [](const auto& info) { return info.param.name; });

TEST(Resume, LastWithoutACheckpointStartsAnew) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_steps = 2;
  options.ckpt_path = "last";
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(), levin::DataLoader(dataset(32), {.batch_size = 8}));
  EXPECT_EQ(trainer.global_step(), 2);
}

TEST(Resume, LastFindsTheNewestRunUnderTheRoot) {
  const Scratch root;
  auto options = quiet(root.str());
  options.logger = true;
  options.max_steps = 2;
  levin::Trainer(options).fit(std::make_shared<Net>(),
                              levin::DataLoader(dataset(32), {.batch_size = 8}));
  options.max_steps = 3;
  options.ckpt_path = "last";
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(), levin::DataLoader(dataset(32), {.batch_size = 8}));
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_EQ(trainer.optimizers().front().steps(), 3);
}

TEST(Resume, OfARunThatIsAtItsEndSaysThatNothingIsLeft) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 2;
  const auto said = [&](const std::string& ckpt_path) {
    options.ckpt_path = ckpt_path;
    levin::Trainer trainer(options);
    ::testing::internal::CaptureStderr();
    trainer.fit(std::make_shared<Net>(), levin::DataLoader(dataset(32), {.batch_size = 8}));
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(""), Not(HasSubstr("nothing is left")));
  const std::string last = root.str() + "/checkpoints/last";
  EXPECT_THAT(said(last), HasSubstr("nothing is left to train; raise --max-epochs"));
  options.max_epochs = 3;
  EXPECT_THAT(said(last), AllOf(HasSubstr("resumed from"), Not(HasSubstr("nothing is left"))));
}

TEST(Resume, IntoAnotherNetworkEndsWithTheNameOfTheCheckpoint) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork has no threads of OpenMP
  const Scratch root;
  auto options = quiet(root.str());
  options.max_steps = 1;
  levin::Trainer(options).fit(std::make_shared<Net>(),
                              levin::DataLoader(dataset(32), {.batch_size = 8}));
  struct Wider : Net {
    Wider() { register_module("more", torch::nn::Linear(3, 3)); }
  };
  options.max_steps = 2;
  options.ckpt_path = root.str() + "/checkpoints/last";
  EXPECT_EXIT(
      ([&]() noexcept {
        levin::Trainer(options).fit(std::make_shared<Wider>(),
                                    levin::DataLoader(dataset(32), {.batch_size = 8}));
      }()),
      ::testing::ExitedWithCode(1),
      "module.state.missing: .*more.weight.* \\[resuming from '.*checkpoints/epoch=0-step=1'\\]");
}

TEST(Resume, TheCheckpointsWeightsPredictAsTheModuleDid) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 1;
  levin::Trainer trainer(options);
  auto net = std::make_shared<Net>();
  trainer.fit(net, levin::DataLoader(dataset(32), {.batch_size = 8}));
  auto fresh = std::make_shared<Net>();
  levin::load_module_state(*fresh, levin::load_weights(root.str() + "/checkpoints/last"));
  expect_same_weights(*net, *fresh);
}

}  // namespace
