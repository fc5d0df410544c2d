// Timer, lambda_callback, finetuning and stochastic_weight_averaging: what they do, refuse and save, on one
// rank and several. tests/oracle/lightning_callbacks_test.cpp compares the last two with Lightning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/log_sink.h"
#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace training_callbacks {
namespace {

using namespace small_run;  // NOLINT
using levin::State;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Keeps the log of the time in which it lives.
class Heard {
 public:
  Heard() {
    before_ = levin::log::set_sink([this](levin::log::Level, std::string_view line) {
      const std::scoped_lock lock(mutex_);
      lines_.emplace_back(line);
    });
  }
  ~Heard() { levin::log::set_sink(before_); }
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;
  std::vector<std::string> lines() {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  levin::log::Sink before_;
};

levin::TrainerOptions with(std::vector<std::shared_ptr<levin::Callback>> callbacks,
                           const fs::path& root, int64_t epochs = 2) {
  auto options = quiet(root.string());
  options.callbacks = std::move(callbacks);
  options.enable_checkpointing = false;
  options.max_epochs = epochs;
  return options;
}

levin::DataLoader loader(int64_t size = 40) { return {dataset(size), {.batch_size = 8}}; }

/// A state in which so many seconds have been trained.
State trained_for(double seconds) {
  State elapsed, state;
  elapsed.set("train", seconds);
  state.set("time_elapsed", std::move(elapsed));
  return state;
}

/// Says that so many seconds were trained before, once the run has begun.
std::shared_ptr<levin::Callback> having_trained(const std::shared_ptr<levin::Timer>& timer,
                                                double seconds, int64_t at_batch) {
  return levin::lambda_callback(
      {.on_train_batch_start = [=](levin::Trainer& trainer, levin::Module&, const levin::Batch&,
                                   int64_t) {
        if (trainer.batches_done() == at_batch) timer->load_state_dict(trained_for(seconds));
      }});
}

TEST(Timer, EndsTheRunAfterTheStepOrTheEpochInWhichItsTimeIsOver) {
  const Scratch root;
  for (const auto& [interval, steps] : {std::pair("step", 3), std::pair("epoch", 5)}) {
    auto timer = levin::timer({.duration = "00:01:00:00", .interval = interval});
    levin::Trainer trainer(with({timer, having_trained(timer, 3600, 2)}, root.path()));
    Heard heard;
    trainer.fit(std::make_shared<Net>(), loader());
    EXPECT_EQ(trainer.global_step(), steps) << interval;
    EXPECT_THAT(heard.lines(), Contains(HasSubstr("timer: the run stops because its duration of "
                                                  "3600 s is over")));
    EXPECT_LT(timer->time_remaining().value(), 0.0);
  }
}

TEST(Timer, SaysNothingIfItIsToldAndNeverStopsWithoutADuration) {
  const Scratch root;
  auto silent = levin::timer({.duration = "00:00:00:00", .verbose = false});
  levin::Trainer stopped(with({silent}, root.path()));
  Heard heard;
  stopped.fit(std::make_shared<Net>(), loader());
  EXPECT_EQ(stopped.global_step(), 0);
  EXPECT_THAT(heard.lines(), Not(Contains(HasSubstr("timer: "))));
  auto measuring = levin::timer();
  levin::Trainer trainer(with({measuring, having_trained(measuring, 1e9, 2)}, root.path()));
  trainer.fit(std::make_shared<Net>(), loader());
  EXPECT_EQ(trainer.global_step(), 10);
  EXPECT_FALSE(measuring->time_remaining().has_value());
}

TEST(Timer, MeasuresEachStage) {
  const Scratch root;
  auto timer = levin::timer({.duration = "01:00:00:00"});
  EXPECT_EQ(timer->time_elapsed(), 0.0);
  EXPECT_EQ(timer->time_remaining(), 86400.0);
  EXPECT_FALSE(timer->start_time("validate").has_value());
  levin::Trainer trainer(with({timer}, root.path()));
  trainer.fit(std::make_shared<Net>(), loader(), loader(16));
  const double trained = timer->time_elapsed();
  EXPECT_GT(trained, 0.0);
  EXPECT_EQ(trained, timer->time_elapsed("train"));  // it stands still
  EXPECT_EQ(*timer->time_remaining(), 86400.0 - trained);
  EXPECT_GT(*timer->start_time("validate"), *timer->start_time());
  EXPECT_LE(*timer->end_time("validate"), *timer->end_time());
  EXPECT_EQ(timer->time_elapsed("validate"),
            *timer->end_time("validate") - *timer->start_time("validate"));
  EXPECT_FALSE(timer->start_time("test").has_value());
}

TEST(Timer, IsSavedAndCountsOnInAResumedRun) {
  const Scratch root;
  const auto keep = [&] { return levin::model_checkpoint({.dirpath = root.str()}); };
  auto options = with({}, root.path(), 1);
  options.enable_checkpointing = true;
  auto timer = levin::timer();
  options.callbacks = {timer, having_trained(timer, 5000, 1), keep()};
  levin::Trainer(options).fit(std::make_shared<Net>(), loader());
  const double saved = levin::load_checkpoint(root / "last")
                           .training.child("callbacks")
                           .child("timer")
                           .child("time_elapsed")
                           .number("train");
  EXPECT_GT(saved, 5000.0);
  options.max_epochs = 2;
  options.ckpt_path = (root / "last").string();
  auto resumed = levin::timer();
  options.callbacks = {resumed, keep()};
  levin::Trainer(options).fit(std::make_shared<Net>(), loader());
  EXPECT_GT(resumed->time_elapsed(), saved);
  auto over = levin::timer({.duration = "00:01:00:00"});  // 3600 s
  options.max_epochs = 3;
  options.callbacks = {over, keep()};
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(), loader());
  EXPECT_EQ(trainer.global_step(), 10);
}

TEST(Timer, RankZerosClockEndsTheRunOfAllRanks) {
  const auto words = run_world(2, [](int64_t rank, const fs::path& folder) -> std::string {
    auto timer = levin::timer({.duration = "00:01:00:00"});
    // Only rank 0's time is over, and then only rank 1's.
    std::string all;
    for (const int64_t late : {0, 1}) {
      levin::Trainer trainer(
          with({timer, having_trained(timer, rank == late ? 3600 : 0, 1)}, folder));
      trainer.fit(std::make_shared<Net>(), loader(80));
      all += std::to_string(trainer.global_step()) + " ";
    }
    return all;
  });
  EXPECT_THAT(words, Each("2 10 "));
}

TEST(Timer, WrongOptionsAndStagesAreRefused) {
  EXPECT_THAT(error_of([] { levin::timer({.interval = "batch"}); }), HasSubstr("trainer.timer"));
  EXPECT_THAT(error_of([] { levin::timer({.duration = "12 hours"}); }), HasSubstr("duration"));
  EXPECT_THAT(error_of([] { static_cast<void>(levin::timer()->time_elapsed("fit")); }),
              HasSubstr("trainer.timer: got stage 'fit'"));
}

struct Predicting : Net {
  using Net::Net;
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return net->forward(batch["x"]);
  }
};

TEST(LambdaCallback, CallsEachFunctionAtTheHookOfItsName) {
  const Scratch root;
  std::map<std::string, int64_t> counts;
  std::vector<std::string> stages;
  const auto count = [&](const char* name) {
    return [&counts, name](levin::Trainer&, levin::Module&, const auto&...) { ++counts[name]; };
  };
  const auto hooks = levin::lambda_callback({
      .key = "counting",
      .setup = [&](levin::Trainer&, levin::Module&,
                   std::string_view stage) { stages.emplace_back(stage); },
      .teardown = count("teardown"),
      .on_exception = count("on_exception"),
      .on_fit_start = count("on_fit_start"),
      .on_fit_end = count("on_fit_end"),
      .on_sanity_check_start = count("on_sanity_check_start"),
      .on_sanity_check_end = count("on_sanity_check_end"),
      .on_train_start = count("on_train_start"),
      .on_train_end = count("on_train_end"),
      .on_train_epoch_start = count("on_train_epoch_start"),
      .on_train_epoch_end = count("on_train_epoch_end"),
      .on_train_batch_start = count("on_train_batch_start"),
      .on_train_batch_end = count("on_train_batch_end"),
      .on_before_zero_grad = count("on_before_zero_grad"),
      .on_before_backward = count("on_before_backward"),
      .on_after_backward = count("on_after_backward"),
      .on_before_optimizer_step = count("on_before_optimizer_step"),
      .on_evaluation_start = count("on_evaluation_start"),
      .on_evaluation_end = count("on_evaluation_end"),
      .on_evaluation_batch_start = count("on_evaluation_batch_start"),
      .on_evaluation_batch_end = count("on_evaluation_batch_end"),
      .on_predict_batch_end = count("on_predict_batch_end"),
      .on_save_weights = count("on_save_weights"),
      .on_save_checkpoint = count("on_save_checkpoint"),
      .on_load_checkpoint = count("on_load_checkpoint"),
  });
  EXPECT_EQ(hooks->state_key(), "counting");
  auto options = with({hooks, levin::model_checkpoint({.dirpath = root.str()})}, root.path());
  options.enable_checkpointing = true;
  options.num_sanity_val_steps = 1;
  const auto net = std::make_shared<Predicting>();
  levin::Trainer trainer(options);
  trainer.fit(net, loader(), loader(16));
  const std::map<std::string, int64_t> of_fit = {
      {"teardown", 1},
      {"on_fit_start", 1},
      {"on_fit_end", 1},
      {"on_sanity_check_start", 1},
      {"on_sanity_check_end", 1},
      {"on_train_start", 1},
      {"on_train_end", 1},
      {"on_train_epoch_start", 2},
      {"on_train_epoch_end", 2},
      {"on_train_batch_start", 10},
      {"on_train_batch_end", 10},
      {"on_before_zero_grad", 10},
      {"on_before_backward", 10},
      {"on_after_backward", 10},
      {"on_before_optimizer_step", 10},
      {"on_evaluation_start", 3},
      {"on_evaluation_end", 3},
      {"on_evaluation_batch_start", 5},
      {"on_evaluation_batch_end", 5},
      {"on_save_weights", 2},
      {"on_save_checkpoint", 2},
  };
  EXPECT_EQ(counts, of_fit);
  counts.clear();
  trainer.predict(net, loader());
  EXPECT_EQ(counts["on_predict_batch_end"], 5);
  options.max_epochs = 3;
  counts.clear();
  options.ckpt_path = (root / "last").string();
  levin::Trainer(options).fit(net, loader());
  EXPECT_EQ(counts["on_load_checkpoint"], 1);
  EXPECT_THAT(stages, ElementsAre("fit", "predict", "fit"));
  struct Failing : Net {
    at::Tensor training_step(const levin::Batch&) override { throw std::runtime_error("no step"); }
  };
  EXPECT_THROW(
      levin::Trainer(with({hooks}, root.path())).fit(std::make_shared<Failing>(), loader()),
      std::runtime_error);
  EXPECT_EQ(counts["on_exception"], 1);
}

/// A backbone with batch norm, or without, and a head.
struct Staged : levin::Module {
  torch::nn::Sequential backbone{nullptr};
  torch::nn::Linear head{nullptr};
  std::vector<double> backbone_rates, head_rates;
  bool has_group = true;

  explicit Staged(bool norm = false) {
    torch::nn::Sequential parts(torch::nn::Linear(6, 8));
    if (norm) parts->push_back(torch::nn::BatchNorm1d(8));
    parts->push_back(torch::nn::Tanh());
    backbone = register_module("backbone", parts);
    head = register_module("head", torch::nn::Linear(8, 3));
    levin::wrap(backbone->ptr(0));
    levin::wrap(head.ptr());
    to(at::kDouble);
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    const auto& groups = trainer().optimizers()[0].optimizer().groups();
    backbone_rates.push_back(groups.front().lr);
    head_rates.push_back(groups.back().lr);
    return torch::nn::functional::cross_entropy(
        head->forward(backbone->forward(batch["x"].to(at::kDouble))), batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override {
    levin::OptimizerConfig config = levin::optim::adamw({.lr = 1e-2});
    return (has_group ? config.group("backbone.*", {}) : config)
        .schedule(levin::optim::cosine({.warmup_steps = 3}));
  }
};

State weights_of(const torch::nn::Module& net) {
  const State full = levin::full(net);
  State state;
  for (const auto& [name, value] : full.values()) state.set(name, full.tensor(name).clone());
  return state;
}

double apart(const State& a, const State& b, const std::string& beginning = "") {
  double most = 0;
  for (const auto& [name, value] : b.values()) {
    if (!name.starts_with(beginning)) continue;
    const at::Tensor off = a.tensor(name).to(at::kDouble) - b.tensor(name).to(at::kDouble);
    most = std::max(most, off.abs().max().item<double>());
  }
  return most;
}

TEST(Finetuning, FreezesAPartAndTrainsItFromItsEpochOn) {
  const Scratch root;
  torch::manual_seed(2);
  const auto net = std::make_shared<Staged>();
  std::vector<State> weights = {weights_of(*net)};
  const auto watch =
      levin::lambda_callback({.on_train_epoch_end = [&](levin::Trainer&, levin::Module& module) {
        weights.push_back(weights_of(module));
      }});
  Heard heard;
  levin::Trainer(
      with({levin::finetuning({.unfreeze_at_epoch = 1, .verbose = true}), watch}, root.path(), 3))
      .fit(net, loader());
  EXPECT_EQ(apart(weights[1], weights[0], "backbone"), 0.0);
  EXPECT_GT(apart(weights[1], weights[0], "head"), 1e-3);
  EXPECT_GT(apart(weights[2], weights[1], "backbone"), 1e-4);
  // A tenth of the head's rate when the epoch begins, then twice as much, but not more than that.
  EXPECT_DOUBLE_EQ(net->backbone_rates[5], net->head_rates[5] * 0.1);
  EXPECT_DOUBLE_EQ(net->backbone_rates[9], net->backbone_rates[5]);  // no schedule moves it
  EXPECT_DOUBLE_EQ(net->backbone_rates[10],
                   std::min(2 * net->backbone_rates[5], net->head_rates[10]));
  EXPECT_THAT(heard.lines(),
              Contains(HasSubstr("finetuning: in epoch 1 'backbone.*' has the learning rate ")));
}

TEST(Finetuning, LeavesBatchNormFrozenIfItIsTold) {
  const Scratch root;
  for (const bool train_bn : {false, true}) {
    const auto net = std::make_shared<Staged>(/*norm=*/true);
    const State before = weights_of(*net);
    levin::Trainer(
        with({levin::finetuning({.unfreeze_at_epoch = 1, .train_bn = train_bn})}, root.path()))
        .fit(net, loader());
    const State after = weights_of(*net);
    EXPECT_GT(apart(after, before, "backbone.0.weight"), 0.0);
    EXPECT_EQ(apart(after, before, "backbone.1.weight") > 0.0, train_bn);
    EXPECT_GT(apart(after, before, "backbone.1.running_mean"), 0.0);  // as in Lightning
  }
}

TEST(Finetuning, ARateOfZeroIsAWarning) {
  const Scratch root;
  Heard heard;
  levin::Trainer(with({levin::finetuning({.unfreeze_at_epoch = 0})}, root.path()))
      .fit(std::make_shared<Staged>(), loader());
  EXPECT_THAT(heard.lines(),
              Contains(HasSubstr("finetuning: 'backbone.*' is unfrozen with the learning rate 0")));
}

TEST(Finetuning, OnePartAfterAnother) {
  const Scratch root;
  struct Deep : Staged {
    levin::OptimizerConfig configure_optimizers() override {
      return levin::optim::sgd({.lr = 0.1})
          .group("backbone.0.weight", {})
          .group("backbone.0.bias", {});
    }
  };
  const auto net = std::make_shared<Deep>();
  std::vector<State> weights = {weights_of(*net)};
  const auto watch =
      levin::lambda_callback({.on_train_epoch_end = [&](levin::Trainer&, levin::Module& module) {
        weights.push_back(weights_of(module));
      }});
  levin::Trainer(
      with({levin::finetuning({.pattern = "backbone.0.bias", .unfreeze_at_epoch = 1}),
            levin::finetuning({.pattern = "backbone.0.weight", .unfreeze_at_epoch = 2}), watch},
           root.path(), 3))
      .fit(net, loader());
  EXPECT_EQ(apart(weights[1], weights[0], "backbone"), 0.0);
  EXPECT_GT(apart(weights[2], weights[1], "backbone.0.bias"), 0.0);
  EXPECT_EQ(apart(weights[2], weights[1], "backbone.0.weight"), 0.0);
  EXPECT_GT(apart(weights[3], weights[2], "backbone.0.weight"), 0.0);
}

TEST(Finetuning, WeightAveragingTakesUpWhatIsUnfrozen) {
  const Scratch root;
  const auto net = std::make_shared<Staged>();
  std::vector<State> weights;
  const auto watch = levin::lambda_callback(
      {.on_train_batch_end = [&](levin::Trainer&, levin::Module& module, const at::Tensor&,
                                 const levin::Batch&,
                                 int64_t) { weights.push_back(weights_of(module)); }});
  levin::Trainer(with({levin::finetuning({.unfreeze_at_epoch = 1}),
                       levin::weight_averaging({.decay = 0.5}), watch},
                      root.path()))
      .fit(net, loader());
  const std::string name = "backbone.0.weight";
  at::Tensor average = weights[0].tensor(name);
  for (const State& one : weights) average = 0.5 * average + 0.5 * one.tensor(name);
  EXPECT_LT((weights_of(*net).tensor(name) - average).abs().max().item<double>(), 1e-12);
  EXPECT_GT((weights.back().tensor(name) - average).abs().max().item<double>(), 1e-5);
}

TEST(Finetuning, WrongOptionsAreRefused) {
  const Scratch root;
  const auto refusal = [&](const levin::FinetuningOptions& options, bool has_group = true) {
    return error_of([&] {
      const auto net = std::make_shared<Staged>();
      net->has_group = has_group;
      levin::Trainer(with({levin::finetuning(options)}, root.path())).fit(net, loader());
    });
  };
  EXPECT_THAT(refusal({.unfreeze_at_epoch = -1}), HasSubstr("trainer.finetuning"));
  EXPECT_THAT(refusal({.backbone_initial_ratio_lr = 0}), HasSubstr("trainer.finetuning"));
  EXPECT_THAT(refusal({.pattern = "encoder.*"}),
              HasSubstr("trainer.finetuning: the pattern 'encoder.*' matches no parameter"));
  EXPECT_THAT(refusal({}, /*has_group=*/false), HasSubstr(".group(\"backbone.*\", {})"));
}

TEST(StochasticWeightAveraging, WrongOptionsAreRefused) {
  const Scratch root;
  const auto refusal = [&](const levin::StochasticWeightAveragingOptions& options,
                           std::optional<int64_t> max_epochs = 2) {
    return error_of([&] {
      auto trainer = with({levin::stochastic_weight_averaging(options)}, root.path());
      trainer.max_epochs = max_epochs;
      trainer.max_steps = 5;
      levin::Trainer(trainer).fit(std::make_shared<Staged>(), loader());
    });
  };
  const std::string id = "trainer.weight_averaging: got ";
  EXPECT_THAT(refusal({}), HasSubstr(id + "swa_lrs = []"));
  EXPECT_THAT(refusal({.swa_lrs = {0.1, -1.0}}), HasSubstr(id + "swa_lrs"));
  EXPECT_THAT(refusal({.swa_lrs = {0.1}, .swa_epoch_start = 0}), HasSubstr(id + "swa_epoch_start"));
  EXPECT_THAT(refusal({.swa_lrs = {0.1}, .swa_epoch_start = 1.5}),
              HasSubstr(id + "swa_epoch_start"));
  EXPECT_THAT(refusal({.swa_lrs = {0.1}, .annealing_epochs = -1}),
              HasSubstr(id + "annealing_epochs"));
  EXPECT_THAT(refusal({.swa_lrs = {0.1}, .annealing_strategy = "exp"}),
              HasSubstr(id + "annealing_strategy"));
  EXPECT_THAT(refusal({.swa_lrs = {0.1, 0.1, 0.1}}), HasSubstr(id + "3 swa_lrs"));
  EXPECT_THAT(refusal({.swa_lrs = {0.1}}, std::nullopt), HasSubstr("but no max_epochs"));
  EXPECT_EQ(refusal({.swa_lrs = {0.1}, .swa_epoch_start = 1}, std::nullopt), "no error");
  struct Two : Staged {
    levin::OptimizerConfig configure_optimizers() override {
      return {levin::optim::sgd({.lr = 0.1}).of(*backbone),
              levin::optim::sgd({.lr = 0.1}).of(*head)};
    }
  };
  EXPECT_THAT(
      error_of([&] {
        levin::Trainer(with({levin::stochastic_weight_averaging({.swa_lrs = {0.1}})}, root.path()))
            .fit(std::make_shared<Two>(), loader());
      }),
      HasSubstr("a module with 2 optimizers"));
}

TEST(StochasticWeightAveraging, ARunThatEndsEarlyKeepsItsTrainedWeights) {
  const Scratch root;
  State trained;
  const auto stop = levin::lambda_callback(
      {.on_train_epoch_end = [&](levin::Trainer& trainer, levin::Module& module) {
        trained = weights_of(module);
        if (trainer.current_epoch() == 2) trainer.request_stop("the test wants it");
      }});
  const auto net = std::make_shared<Staged>();
  Heard heard;
  levin::Trainer(
      with({levin::stochastic_weight_averaging({.swa_lrs = {0.1}, .swa_epoch_start = 1}), stop},
           root.path(), 5))
      .fit(net, loader());
  EXPECT_EQ(apart(weights_of(*net), trained), 0.0);
  EXPECT_THAT(heard.lines(), Contains(HasSubstr("the run ended in epoch 3 of 5")));
}

/// Returns the weights after a run on some ranks with the callbacks that change weights.
struct Way {
  std::string name;
  std::function<std::shared_ptr<levin::Callback>()> callback;
  bool norm = false;
};
std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

State fit_on(const Way& way, const std::string& strategy, int64_t batch_size, const fs::path& root,
             const std::string& from = "", bool stops = false) {
  torch::manual_seed(9);
  const auto net = std::make_shared<Staged>(way.norm);
  auto options =
      with({way.callback(), levin::model_checkpoint({.dirpath = root.string()})}, root, 4);
  if (stops) {
    options.callbacks.push_back(levin::lambda_callback(
        {.on_train_batch_end = [](levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                                  const levin::Batch&, int64_t) {
          if (trainer.global_step() == 13) trainer.request_stop("the test wants it");
        }}));
  }
  options.enable_checkpointing = true;
  options.strategy = strategy;
  options.engine.sync_batchnorm = true;
  options.seed = 3;
  options.ckpt_path = from;
  levin::Trainer trainer(options);
  trainer.fit(net, levin::DataLoader(dataset(40), {.batch_size = batch_size, .shuffle = true}));
  return weights_of(*net);
}

class OnRanks : public ::testing::TestWithParam<Way> {};

TEST_P(OnRanks, EqualOneRankAndResumeBitForBit) {
  const Way& way = GetParam();
  const Scratch scratch;
  const auto alone = run_world(1, [&](int64_t, const fs::path&) -> std::string {
    levin::save_weights(scratch / "alone.safetensors", fit_on(way, "auto", 8, scratch / "alone"));
    return "";
  });
  ASSERT_THAT(alone, Each(""));
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
    const State wanted = levin::load_weights(scratch / "alone.safetensors");
    for (const char* strategy : {"ddp", "fsdp", "zero"}) {
      const fs::path root = folder / strategy;
      const State whole = fit_on(way, strategy, 4, root / "whole");
      if (const double off = apart(whole, wanted); !(off < 1e-8)) {
        return c10::str(strategy, " is off one rank by ", off);
      }
      fit_on(way, strategy, 4, root / "parts", "", /*stops=*/true);
      const State resumed =
          fit_on(way, strategy, 4, root / "parts", (root / "parts/last").string());
      if (const double off = apart(resumed, whole); off != 0.0) {
        return c10::str(strategy, " resumed is off by ", off);
      }
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    All, OnRanks,
    ::testing::Values(Way{"Swa",
                          [] {
                            return levin::stochastic_weight_averaging(
                                {.swa_lrs = {0.05}, .swa_epoch_start = 2, .annealing_epochs = 2});
                          }},
                      Way{"SwaOfBatchNorm",
                          [] {
                            return levin::stochastic_weight_averaging(
                                {.swa_lrs = {0.05}, .swa_epoch_start = 0.5, .annealing_epochs = 1});
                          },
                          true},
                      Way{"Finetuning", [] { return levin::finetuning({.unfreeze_at_epoch = 1}); }},
                      Way{"FinetuningLater",
                          [] { return levin::finetuning({.unfreeze_at_epoch = 3}); }},
                      Way{"AvgFn",
                          [] {
                            return levin::weight_averaging(
                                {.decay = std::nullopt,
                                 .avg_fn = [](const at::Tensor& average, const at::Tensor& value,
                                              int64_t) { return average * 0.75 + value * 0.25; }});
                          }}),
    [](const auto& info) { return info.param.name; });

TEST(WeightAveraging, AFunctionAndADecayExcludeEachOther) {
  const levin::AverageFunction function = [](const at::Tensor& average, const at::Tensor&,
                                             int64_t) { return average; };
  EXPECT_THAT(error_of([&] { levin::weight_averaging({.avg_fn = function}); }),
              HasSubstr("trainer.weight_averaging: got decay = 0.999 and an avg_fn"));
  const Scratch root;
  const levin::AverageFunction wrong = [](const at::Tensor& average, const at::Tensor&, int64_t) {
    return average.sum();
  };
  EXPECT_THAT(
      error_of([&] {
        levin::Trainer(
            with({levin::weight_averaging({.decay = std::nullopt, .avg_fn = wrong})}, root.path()))
            .fit(std::make_shared<Staged>(), loader());
      }),
      HasSubstr("avg_fn returned 1 elements"));
}

}  // namespace
}  // namespace training_callbacks
