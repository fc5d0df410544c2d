// What fit does to the weights, and in which order it calls whom.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/graph/meta/init_on_meta.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT

struct Linear : levin::Module {
  torch::nn::Linear layer{nullptr};
  std::function<void(Linear&)> after_step;
  bool weigh = false;
  double lr = 0.1;

  Linear() {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(6, 2));
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    if (weigh) set_loss_weight(static_cast<double>(batch.size()));
    return torch::nn::functional::cross_entropy(layer->forward(batch["x"]),
                                                batch["y"].clamp_max(1));
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = lr}); }
};

std::shared_ptr<Linear> fit(levin::TrainerOptions options, int64_t batch_size, int64_t samples,
                            bool weigh = false) {
  auto net = std::make_shared<Linear>();
  net->weigh = weigh;
  levin::Trainer trainer(std::move(options));
  trainer.fit(net, levin::DataLoader(dataset(samples), {.batch_size = batch_size}));
  return net;
}

levin::TrainerOptions bare_options() {
  auto options = quiet(".");
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  return options;
}

TEST(Fit, AModuleThatWasBuiltWithoutMemoryTrainsAsAnyOther) {
  const auto net = levin::init_on_meta([] { return std::make_shared<Linear>(); });
  ASSERT_TRUE(levin::is_on_meta(*net));
  levin::Trainer trainer(bare_options());
  trainer.fit(net, levin::DataLoader(dataset(40), {.batch_size = 8}));
  const auto wanted = fit(bare_options(), 8, 40);
  EXPECT_TRUE(net->layer->weight.equal(wanted->layer->weight));
  EXPECT_TRUE(net->layer->bias.equal(wanted->layer->bias));
}

/// Operators of that name that ran meanwhile.
struct Count {
  static inline std::string of;
  static inline std::atomic<int64_t> calls = 0;
  at::CallbackHandle handle;

  explicit Count(const std::string& name) {
    of = name;
    calls = 0;
    handle = at::addGlobalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& fn)
                                       -> std::unique_ptr<at::ObserverContext> {
          if (of == fn.name()) ++calls;
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~Count() { at::removeCallback(handle); }
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;
};

/// Its weights are computed when it is built.
struct Built : Linear {
  at::Tensor unregistered;
  Built() {
    const at::NoGradGuard no_grad;
    layer->weight.copy_(torch::erfinv(torch::zeros_like(layer->weight)) + 0.5);
    unregistered = torch::erfinv(torch::zeros({3}));
  }
};

TEST(Fit, AModuleWithoutMemoryGetsNoValuesWhereACheckpointFollows) {
  const levin::test::Scratch root;
  const auto built = [] { return levin::init_on_meta([] { return std::make_shared<Built>(); }); };
  auto options = quiet(root.str());
  options.max_epochs = 1;
  const auto data = levin::DataLoader(dataset(40), {.batch_size = 8});
  {
    const auto net = built();
    const Count count("aten::erfinv");
    levin::Trainer(options).fit(net, data);
    EXPECT_EQ(Count::calls, 2);
  }
  options.ckpt_path = "last";
  options.max_epochs = 2;
  const auto resumed = built();
  {
    const Count count("aten::erfinv");
    levin::Trainer(options).fit(resumed, data);
    EXPECT_EQ(Count::calls, 1);  // of the tensor that no checkpoint holds
  }
  EXPECT_TRUE(torch::equal(resumed->unregistered, torch::zeros({3})));
  const auto wanted = std::make_shared<Built>();
  options.ckpt_path = "";
  options.enable_checkpointing = false;
  levin::Trainer(options).fit(wanted, data);
  EXPECT_TRUE(torch::equal(resumed->layer->weight, wanted->layer->weight));
  // Evaluation of the checkpoint's weights, too.
  options.ckpt_path = "";
  const auto evaluated = built();
  const Count count("aten::erfinv");
  levin::Trainer trainer(options);
  trainer.test(evaluated, data, {.ckpt_path = (root / "checkpoints/last").string()});
  EXPECT_EQ(Count::calls, 1);
  EXPECT_TRUE(torch::equal(evaluated->layer->weight, wanted->layer->weight));
}

TEST(Fit, EqualsAHandWrittenLoop) {
  const auto net = fit(bare_options(), 8, 40);
  Linear reference;
  torch::optim::SGD optimizer(reference.parameters(), 0.1);
  const auto all = dataset(40)->get(std::vector<int64_t>([] {
    std::vector<int64_t> i(40);
    std::iota(i.begin(), i.end(), 0);
    return i;
  }()));
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int64_t start = 0; start < 40; start += 8) {
      optimizer.zero_grad();
      reference.training_step(all.narrow(start, 8), 0).backward();
      optimizer.step();
    }
  }
  EXPECT_TRUE(torch::allclose(net->layer->weight, reference.layer->weight, 1e-6, 1e-7));
}

TEST(Fit, AccumulationEqualsTheLargeBatch) {
  auto accumulated = bare_options();
  accumulated.accumulate_grad_batches = 4;
  // 44 samples: the last group of an epoch is 12 of them, in batches of 4, in both runs.
  const auto small = fit(accumulated, 4, 44);
  const auto large = fit(bare_options(), 16, 44);
  EXPECT_TRUE(torch::allclose(small->layer->weight, large->layer->weight, 1e-5, 1e-6));
}

TEST(Fit, WeightedAccumulationEqualsTheLargeBatchForUnevenBatches) {
  // Batches of 8, 8, 4: a mean of means would count the last one twice.
  auto options = bare_options();
  options.accumulate_grad_batches = 3;
  const auto large = fit(bare_options(), 20, 20);
  EXPECT_TRUE(
      torch::allclose(fit(options, 8, 20, true)->layer->weight, large->layer->weight, 1e-5, 1e-6));
  EXPECT_FALSE(
      torch::allclose(fit(options, 8, 20)->layer->weight, large->layer->weight, 1e-5, 1e-6));
}

TEST(Fit, BarebonesAndEverythingOnTrainAlike) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 2;
  options.logger = true;
  options.log_every_n_steps = 1;
  auto nothing = bare_options();
  nothing.barebones = true;
  expect_same_weights(*fit(options, 8, 40), *fit(nothing, 8, 40));
}

TEST(Fit, StopsAtStepsEpochsAndTime) {
  struct Case {
    std::string name;
    std::function<void(levin::TrainerOptions&)> set;
    int64_t steps;
  };
  for (const Case& one :
       std::vector<Case>{{"max_epochs", [](auto& o) { o.max_epochs = 3; }, 15},
                         {"max_steps", [](auto& o) { o.max_epochs = -1, o.max_steps = 7; }, 7},
                         {"both", [](auto& o) { o.max_epochs = 1, o.max_steps = 100; }, 5},
                         {"no time", [](auto& o) { o.max_epochs = -1, o.max_time = "00:00"; }, 0},
                         {"fast_dev_run", [](auto& o) { o.fast_dev_run = 2; }, 2},
                         {"limit count", [](auto& o) { o.limit_train_batches = 3; }, 6},
                         {"limit fraction", [](auto& o) { o.limit_train_batches = 0.4; }, 4}}) {
    auto options = bare_options();
    one.set(options);
    levin::Trainer trainer(options);
    trainer.fit(std::make_shared<Linear>(), levin::DataLoader(dataset(40), {.batch_size = 8}));
    EXPECT_EQ(trainer.global_step(), one.steps) << one.name;
  }
}

TEST(Fit, TheTimeLimitEndsALongRun) {
  auto options = bare_options();
  options.max_epochs = -1;
  options.max_time = "00:01";
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Linear>(), levin::DataLoader(dataset(40), {.batch_size = 8}));
  EXPECT_GT(trainer.global_step(), 0);
}

struct Order : Linear {
  std::vector<std::string> calls;
  void setup(std::string_view) override { calls.push_back("setup"); }
  void configure_model() override { calls.push_back("configure_model"); }
  void on_fit_start() override { calls.push_back("on_fit_start"); }
  void on_train_start() override { calls.push_back("on_train_start"); }
  void on_train_epoch_start() override { calls.push_back("on_train_epoch_start"); }
  bool on_train_batch_start(const levin::Batch&, int64_t) override {
    calls.push_back("on_train_batch_start");
    return true;
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t i) override {
    calls.push_back("training_step");
    return Linear::training_step(batch, i);
  }
  void on_before_zero_grad(levin::OptimizerHandle&) override {
    calls.push_back("on_before_zero_grad");
  }
  void on_before_backward(const at::Tensor&) override { calls.push_back("on_before_backward"); }
  void on_after_backward() override { calls.push_back("on_after_backward"); }
  void on_before_optimizer_step(levin::OptimizerHandle&) override {
    calls.push_back("on_before_optimizer_step");
  }
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t) override {
    calls.push_back("on_train_batch_end");
  }
  void on_validation_start() override { calls.push_back("on_validation_start"); }
  void validation_step(const levin::Batch&, int64_t) override {
    EXPECT_FALSE(is_training());
    EXPECT_FALSE(torch::GradMode::is_enabled());
    calls.push_back("validation_step");
  }
  void on_validation_end() override { calls.push_back("on_validation_end"); }
  void on_train_epoch_end() override { calls.push_back("on_train_epoch_end"); }
  void on_train_end() override { calls.push_back("on_train_end"); }
  void on_fit_end() override { calls.push_back("on_fit_end"); }
  void teardown(std::string_view) override { calls.push_back("teardown"); }
};

TEST(Fit, HooksComeInLightningsOrder) {
  auto options = bare_options();
  options.max_epochs = 1;
  auto net = std::make_shared<Order>();
  levin::Trainer trainer(options);
  trainer.fit(net, levin::DataLoader(dataset(8), {.batch_size = 8}),
              levin::DataLoader(dataset(8), {.batch_size = 8}));
  EXPECT_EQ(net->calls, (std::vector<std::string>{
                            "setup", "configure_model", "on_fit_start", "on_train_start",
                            "on_train_epoch_start", "on_train_batch_start", "training_step",
                            "on_before_zero_grad", "on_before_backward", "on_after_backward",
                            "on_before_optimizer_step", "on_train_batch_end", "on_validation_start",
                            "validation_step", "on_validation_end", "on_train_epoch_end",
                            "on_train_end", "on_fit_end", "teardown"}));
  EXPECT_TRUE(net->is_training());
}

TEST(Fit, ValidationComesWhenAskedFor) {
  struct Case {
    levin::Portion interval;
    int64_t every, accumulate, sanity, expected;
  };
  // 10 batches an epoch, 2 epochs.
  for (const Case& one : {Case{1.0, 1, 1, 0, 2}, Case{0.5, 1, 1, 0, 4}, Case{3, 1, 1, 0, 6},
                          Case{1.0, 2, 1, 0, 1}, Case{2, 1, 4, 0, 6}, Case{1.0, 1, 1, 1, 3}}) {
    auto options = bare_options();
    options.val_check_interval = one.interval;
    options.check_val_every_n_epoch = one.every;
    options.accumulate_grad_batches = one.accumulate;
    options.num_sanity_val_steps = one.sanity;
    auto net = std::make_shared<Order>();
    levin::Trainer(options).fit(net, levin::DataLoader(dataset(40), {.batch_size = 4}),
                                levin::DataLoader(dataset(8), {.batch_size = 8}));
    EXPECT_EQ(std::count(net->calls.begin(), net->calls.end(), "validation_step"), one.expected)
        << levin::to_text(one.interval);
  }
}

TEST(Fit, SanityValidationChangesNothing) {
  const auto trained = [](int64_t sanity_steps) {
    auto options = bare_options();
    options.num_sanity_val_steps = sanity_steps;
    options.seed = 4;
    levin::Trainer trainer(options);
    auto net = std::make_shared<Net>();
    trainer.fit(net, levin::DataLoader(dataset(40), {.batch_size = 8, .shuffle = true}),
                levin::DataLoader(dataset(40), {.batch_size = 8}));
    return net;
  };
  expect_same_weights(*trained(0), *trained(2));
}

struct Gan : levin::Module {
  torch::nn::Linear generator{nullptr}, critic{nullptr};
  Gan() {
    automatic_optimization = false;
    generator = register_module("generator", torch::nn::Linear(2, 6));
    critic = register_module("critic", torch::nn::Linear(6, 1));
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto& g = optimizer(0);
    auto& c = optimizer(1);
    g.toggle();
    g.zero_grad();
    c.zero_grad();
    manual_backward(-critic->forward(generator->forward(torch::randn({8, 2}))).mean());
    EXPECT_FALSE(critic->weight.grad().defined());
    g.step();
    g.untoggle();
    manual_backward(critic->forward(generator->forward(torch::randn({8, 2})).detach()).mean() -
                    critic->forward(batch["x"]).mean());
    c.step();
    return {};
  }
  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::adam({.lr = 0.01}).of(generator),
            levin::optim::sgd({.lr = 0.01}).of(critic)};
  }
};

TEST(Fit, ManualOptimizationDrivesSeveralOptimizers) {
  auto net = std::make_shared<Gan>();
  const at::Tensor before = net->critic->weight.detach().clone();
  levin::Trainer trainer(bare_options());
  trainer.fit(net, levin::DataLoader(dataset(40), {.batch_size = 8}));
  EXPECT_EQ(trainer.global_step(), 10);
  EXPECT_FALSE(torch::equal(before, net->critic->weight));
  EXPECT_TRUE(net->critic->weight.requires_grad());
}

TEST(Fit, SeveralOptimizersStepAtTheirFrequency) {
  struct Two : Linear {
    levin::OptimizerConfig configure_optimizers() override {
      return {levin::optim::sgd({.lr = 0.1}).parameters("*weight"),
              levin::optim::sgd({.lr = 0.1}).parameters("*bias").frequency(5)};
    }
  };
  levin::Trainer trainer(bare_options());
  trainer.fit(std::make_shared<Two>(), levin::DataLoader(dataset(40), {.batch_size = 8}));
  EXPECT_EQ(trainer.optimizers()[0].steps(), 10);
  EXPECT_EQ(trainer.optimizers()[1].steps(), 2);
}

TEST(Evaluate, MetricsAreOfTheWholeDataWhateverTheBatches) {
  auto net = std::make_shared<Net>();
  levin::Trainer trainer(bare_options());
  const double in_one =
      trainer.validate(net, levin::DataLoader(dataset(30), {.batch_size = 30})).at("val_acc");
  const double in_many =
      trainer.validate(net, levin::DataLoader(dataset(30), {.batch_size = 7})).at("val_acc");
  EXPECT_NEAR(in_one, in_many, 1e-6);
}

TEST(Evaluate, PredictGivesEveryBatchInOrder) {
  struct Predicting : Linear {
    at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
      return layer->forward(batch["x"]);
    }
  };
  auto net = std::make_shared<Predicting>();
  levin::Trainer trainer(bare_options());
  const auto outputs = trainer.predict(net, levin::DataLoader(dataset(20), {.batch_size = 8}));
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[2].size(0), 4);
  EXPECT_FALSE(outputs[0].requires_grad());
}

TEST(Evaluate, PartsThatWereFrozenInEvaluationStayThere) {
  auto net = std::make_shared<Net>();
  net->train();
  net->net->ptr(1)->eval();
  levin::Trainer(bare_options()).validate(net, levin::DataLoader(dataset(8), {.batch_size = 8}));
  EXPECT_TRUE(net->is_training());
  EXPECT_FALSE(net->net->ptr(1)->is_training());
}

}  // namespace
