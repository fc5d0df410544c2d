// What is logged where: by which hooks, as which rows, and what callbacks see of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/trainer/numbered_run.h"

namespace logged {
namespace {

using namespace numbered_run;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Rows : Recorder {
  Rows() { folder = "."; }
  std::vector<std::pair<int64_t, double>> of(const std::string& name) const {
    std::vector<std::pair<int64_t, double>> found;
    for (const Row& row : rows) {
      if (row.name == name) found.emplace_back(row.step, row.value);
    }
    return found;
  }
};

struct Logging : Seeing {
  std::function<void(Logging&, std::string_view hook)> at;
  void hook(std::string_view name) {
    if (at) at(*this, name);
  }
  void on_fit_start() override { hook("on_fit_start"); }
  void on_train_start() override { hook("on_train_start"); }
  void on_train_epoch_start() override { hook("on_train_epoch_start"); }
  bool on_train_batch_start(const levin::Batch&, int64_t) override {
    hook("on_train_batch_start");
    return true;
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    hook("training_step");
    return Seeing::training_step(batch, index);
  }
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t) override {
    hook("on_train_batch_end");
  }
  void on_validation_start() override { hook("on_validation_start"); }
  void on_validation_batch_start(const levin::Batch&, int64_t) override {
    hook("on_validation_batch_start");
  }
  void validation_step(const levin::Batch& batch, int64_t index) override {
    hook("validation_step");
    Seeing::validation_step(batch, index);
  }
  void on_validation_epoch_end() override { hook("on_validation_epoch_end"); }
  void on_validation_end() override { hook("on_validation_end"); }
  void test_step(const levin::Batch&, int64_t) override { hook("test_step"); }
  void on_train_epoch_end() override { hook("on_train_epoch_end"); }
  void on_train_end() override { hook("on_train_end"); }
};

/// Trains 2 epochs of 3 batches of 2, 2 and 1 samples, with as many of validation.
std::shared_ptr<Rows> rows_of(const std::shared_ptr<Logging>& net, levin::TrainerOptions options,
                              std::map<std::string, double>* metrics = nullptr) {
  const auto rows = std::make_shared<Rows>();
  options.logger = rows;
  levin::Trainer trainer(options);
  trainer.fit(net, numbers(5, 2), numbers(5, 2));
  if (metrics != nullptr) *metrics = trainer.callback_metrics();
  return rows;
}

levin::TrainerOptions each_step() {
  auto options = bare();
  options.log_every_n_steps = 1;
  return options;
}

TEST(Log, EveryHookThatMayLogDoes) {
  const auto net = std::make_shared<Logging>();
  double count = 0;
  const std::vector<std::string> hooks = {"on_train_start",
                                          "on_train_epoch_start",
                                          "on_train_batch_start",
                                          "training_step",
                                          "on_train_batch_end",
                                          "on_validation_start",
                                          "on_validation_batch_start",
                                          "validation_step",
                                          "on_validation_epoch_end",
                                          "on_train_epoch_end"};
  net->at = [&](Logging& self, std::string_view hook) {
    if (std::ranges::count(hooks, hook) == 1) self.log(hook, ++count);
  };
  const auto rows = rows_of(net, each_step());
  for (const std::string& hook : hooks) {
    const bool once = hook == "on_train_start";
    const bool by_step =
        hook == "on_train_batch_start" || hook == "training_step" || hook == "on_train_batch_end";
    EXPECT_EQ(rows->of(hook).size(), once ? 1U : by_step ? 6U : 2U) << hook;
  }
}

TEST(Log, AMeanIsWeightedByTheBatchItWasLoggedIn) {
  const auto net = std::make_shared<Logging>();
  double value = 0;
  net->at = [&](Logging& self, std::string_view hook) {
    if (hook == "on_train_epoch_start") value = 0;
    if (hook == "on_train_batch_start" || hook == "on_validation_batch_start") {
      self.log(hook, value, {.on_step = false, .on_epoch = true});
      value += 10;
    }
  };
  const auto rows = rows_of(net, each_step());
  // Batches of 2, 2 and 1 samples.
  EXPECT_THAT(rows->of("on_train_batch_start"),
              ElementsAre(std::pair(3, (0 * 2 + 10 * 2 + 20) / 5.0),
                          std::pair(6, (0 * 2 + 10 * 2 + 20) / 5.0)));
  EXPECT_THAT(rows->of("on_validation_batch_start"),
              ElementsAre(std::pair(3, (30 * 2 + 40 * 2 + 50) / 5.0),
                          std::pair(6, (30 * 2 + 40 * 2 + 50) / 5.0)));
}

TEST(Log, WhereNothingIsCollectedItIsAnError) {
  for (const std::string where : {"on_fit_start", "on_validation_end", "on_train_end"}) {
    const auto net = std::make_shared<Logging>();
    net->at = [&](Logging& self, std::string_view hook) {
      if (hook == where) self.log("lost", 1.0);
    };
    EXPECT_THAT(levin::test::error_of([&] { rows_of(net, each_step()); }), HasSubstr("trainer.log"))
        << where;
  }
}

TEST(Log, StepsOfValidationAndTestAreRows) {
  const auto net = std::make_shared<Logging>();
  double value = 0;
  net->at = [&](Logging& self, std::string_view hook) {
    if (hook == "validation_step" || hook == "test_step") {
      self.log(hook, value++, {.on_step = true, .on_epoch = true});
    }
  };
  const auto rows = std::make_shared<Rows>();
  auto options = each_step();
  options.logger = rows;
  levin::Trainer trainer(options);
  trainer.fit(net, numbers(5, 2), numbers(5, 2));
  EXPECT_THAT(rows->of("validation_step_step"),
              ElementsAre(std::pair(0, 0.0), std::pair(1, 1.0), std::pair(2, 2.0),
                          std::pair(3, 3.0), std::pair(4, 4.0), std::pair(5, 5.0)));
  EXPECT_THAT(rows->of("validation_step_epoch"),
              ElementsAre(std::pair(3, (0 * 2 + 1 * 2 + 2) / 5.0),
                          std::pair(6, (3 * 2 + 4 * 2 + 5) / 5.0)));
  value = 0;
  trainer.test(net, numbers(4, 2));
  EXPECT_THAT(rows->of("test_step_step"), ElementsAre(std::pair(0, 0.0), std::pair(1, 1.0)));
}

TEST(Log, TheNewestValueOfANameIsWhatCallbacksSee) {
  struct Watching : levin::Callback {
    std::vector<std::pair<std::string, double>> seen;
    std::string state_key() const override { return "watching"; }
    void see(levin::Trainer& trainer, const std::string& where) {
      const auto metrics = trainer.callback_metrics();
      if (metrics.contains("x")) seen.emplace_back(where, metrics.at("x"));
    }
    void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                            const levin::Batch&, int64_t) override {
      see(trainer, "batch");
    }
    void on_evaluation_end(levin::Trainer& trainer, levin::Module&, std::string_view) override {
      see(trainer, "validation");
    }
    void on_train_epoch_end(levin::Trainer& trainer, levin::Module&) override {
      see(trainer, "epoch");
    }
  };
  const auto net = std::make_shared<Logging>();
  const auto watching = std::make_shared<Watching>();
  double trained = 0;
  net->at = [&](Logging& self, std::string_view hook) {
    if (hook == "training_step") self.log("x", ++trained, {.on_step = true, .on_epoch = true});
    if (hook == "validation_step") self.log("x", 100.0);
  };
  auto options = each_step();
  options.max_epochs = 1;
  options.callbacks = {watching};
  rows_of(net, options);
  using Seen = std::pair<std::string, double>;
  EXPECT_THAT(watching->seen,
              ElementsAre(Seen("batch", 1), Seen("batch", 2), Seen("batch", 3),
                          Seen("validation", 100), Seen("epoch", (1 * 2 + 2 * 2 + 3) / 5.0)));
}

TEST(Log, CallbacksSeeWhatOnlySomeStepsLog) {
  const auto net = std::make_shared<Logging>();
  double count = 0;
  net->at = [&](Logging& self, std::string_view hook) {
    if (hook == "training_step" && static_cast<int64_t>(++count) % 3 == 1) self.log("some", count);
  };
  std::map<std::string, double> metrics;
  rows_of(net, each_step(), &metrics);
  EXPECT_EQ(metrics.at("some"), 4);
}

TEST(Log, ARunThatIsTooShortForARowSaysSo) {
  const auto said = [](int64_t every) {
    auto options = bare();
    options.log_every_n_steps = every;
    ::testing::internal::CaptureStderr();
    rows_of(std::make_shared<Logging>(), options);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(7), HasSubstr("6 steps, but step values are logged every 7"));
  EXPECT_THAT(said(6), ::testing::Not(HasSubstr("step values")));
}

TEST(Epoch, ValuesOfItsHooksOutliveAnInterruption) {
  const Scratch root;
  const auto trained = [&](int64_t max_steps, const std::string& ckpt_path) {
    const auto net = std::make_shared<Logging>();
    net->at = [](Logging& self, std::string_view hook) {
      if (hook == "on_train_epoch_start") self.log("begun", 7.0 + self.current_epoch());
    };
    const auto rows = std::make_shared<Rows>();
    auto options = quiet(root.str());
    options.max_epochs = 2;
    options.max_steps = max_steps;
    options.logger = rows;
    options.ckpt_path = ckpt_path;
    rows->folder = root.str();
    levin::Trainer(options).fit(net, numbers(5, 2));
    return rows->of("begun");
  };
  trained(4, "");  // inside the second epoch
  EXPECT_THAT(trained(-1, "last"), ElementsAre(std::pair(6, 8.0)));
}

}  // namespace
}  // namespace logged
