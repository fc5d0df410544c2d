// Corners of the loops where something could go wrong without a word: options at their limits,
// loaders that are used twice, what is logged where, and what hooks see.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/trainer/callbacks/model_checkpoint.h"
#include "tests/support/error_of.h"
#include "tests/trainer/small_run.h"

namespace corners {
namespace {

using namespace small_run;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

levin::TrainerOptions bare() {
  auto options = quiet(".");
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  return options;
}

/// Keeps the numbers of the samples that it sees.
struct Seeing : levin::Module {
  torch::nn::Linear layer{nullptr};
  std::vector<int64_t> trained, validated;

  Seeing() {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(1, 1));
  }
  static void note(std::vector<int64_t>& list, const levin::Batch& batch) {
    for (int64_t i = 0; i < batch.size(); ++i) list.push_back(batch["number"][i].item<int64_t>());
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    note(trained, batch);
    return layer->forward(batch["x"]).square().mean();
  }
  void validation_step(const levin::Batch& batch, int64_t) override { note(validated, batch); }
  void test_step(const levin::Batch& batch, int64_t) override { note(validated, batch); }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override { return batch["number"]; }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

levin::DataLoader numbers(int64_t count, int64_t batch_size, int64_t from = 0) {
  return {levin::data::tensors(
              {{"x", torch::ones({count, 1})}, {"number", torch::arange(from, from + count)}}),
          {.batch_size = batch_size}};
}

std::vector<int64_t> range(int64_t from, int64_t to) {
  std::vector<int64_t> list(static_cast<size_t>(to - from));
  std::iota(list.begin(), list.end(), from);
  return list;
}

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
              HasSubstr("1 of the module's parts are in evaluation mode"));
  EXPECT_FALSE(norm->is_training());
  EXPECT_TRUE(torch::equal(norm->running_mean, mean));
}

// In the sanity check before training, and between its batches.
TEST(Uncaught, AnErrorOfValidationSaysThatItIsOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork has no threads of OpenMP
  struct Failing : Net {
    void validation_step(const levin::Batch&, int64_t) override {
      throw std::runtime_error("too wide");
    }
  };
  auto options = bare();
  options.val_check_interval = 2;
  for (const int64_t sanity : {1, 0}) {
    options.num_sanity_val_steps = sanity;
    const std::string batch = sanity == 1 ? "0" : "2";
    EXPECT_EXIT(([&]() noexcept {
                  levin::Trainer(options).fit(std::make_shared<Failing>(),
                                              levin::DataLoader(dataset(32), {.batch_size = 8}),
                                              levin::DataLoader(dataset(8), {.batch_size = 8}));
                }()),
                ::testing::ExitedWithCode(1),
                "too wide \\[validation, epoch 0, batch " + batch + "\\]");
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
              HasSubstr("share a sampler"));
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

// ---- What is logged

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
  EXPECT_THAT(said(7), HasSubstr("6 steps and values of steps are logged every 7"));
  EXPECT_THAT(said(6), ::testing::Not(HasSubstr("values of steps")));
}

// ---- Hooks and limits

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
}  // namespace corners
