// Training with compile = "replay": equal to eager bit for bit, whatever a step is made of; what
// cannot be replayed is named, and trained as it is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/graph/record/trace.h"
#include "tests/support/error_of.h"
#include "tests/support/replayed.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using levin::test::num_replayed;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Recipe {
  std::string name;
  levin::OptimizerConfig optimizer = levin::optim::adamw({.lr = 1e-2});
  std::string precision = "32-true";
  int64_t accumulate = 1;
  std::optional<double> clip;
  std::string clip_algorithm = "norm";
  int64_t batch_size = 8;  ///< of 64 samples, or 60
  int64_t samples = 64;
  double memory = 1.0;    ///< activation_memory_budget
  int64_t replays = 180;  ///< batches of 200 steps that are at least replayed
};
std::ostream& operator<<(std::ostream& out, const Recipe& recipe) { return out << recipe.name; }

struct RecipeNet : Net {
  levin::OptimizerConfig config;
  explicit RecipeNet(levin::OptimizerConfig config) : config(std::move(config)) {}
  levin::OptimizerConfig configure_optimizers() override { return config; }
};

struct Trained {
  std::shared_ptr<levin::Module> net;
  std::vector<Recorder::Row> rows;
  levin::graph::CompiledReport report;
};

/// Ends the run after so many steps, as if it had been interrupted there.
struct EndAfter : levin::Callback {
  int64_t step;
  explicit EndAfter(int64_t step) : step(step) {}
  std::string state_key() const override { return "end_after"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == step) trainer.request_stop("interrupted");
  }
};

Trained train_recipe(const Recipe& recipe, const std::string& compile, const std::string& root,
                     std::shared_ptr<levin::Module> net, int64_t stop_after = 200,
                     const std::string& ckpt_path = "") {
  auto options = quiet(root);
  auto recorder = std::make_shared<Recorder>();
  recorder->folder = root;
  options.accelerator = "cpu";
  options.logger = recorder;
  options.callbacks = {std::make_shared<EndAfter>(stop_after)};
  options.enable_checkpointing = stop_after < 200;
  options.precision = recipe.precision;
  options.max_epochs = -1;
  options.max_steps = 200;
  options.log_every_n_steps = 1;
  options.accumulate_grad_batches = recipe.accumulate;
  options.gradient_clip_val = recipe.clip;
  options.gradient_clip_algorithm = recipe.clip_algorithm;
  options.seed = 11;
  options.engine.compile = compile;
  if (compile == "replay") options.engine.activation_memory_budget = recipe.memory;
  levin::Trainer trainer(options);
  torch::manual_seed(3);
  for (at::Tensor& parameter : net->parameters()) {
    const at::NoGradGuard no_grad;
    parameter.normal_(0, 0.3);
  }
  trainer.fit(net,
              levin::DataLoader(dataset(recipe.samples),
                                {.batch_size = recipe.batch_size, .shuffle = true}),
              std::nullopt, {.ckpt_path = ckpt_path});
  return {net, recorder->rows, trainer.compile_report()};
}

class TrainerCompile : public testing::TestWithParam<Recipe> {};

TEST_P(TrainerCompile, EqualsEagerOver200Steps) {
  const Recipe& recipe = GetParam();
  const Scratch eager_root, replay_root;
  const auto net = [&] { return std::make_shared<RecipeNet>(recipe.optimizer); };
  const Trained eager = train_recipe(recipe, "no", eager_root.str(), net());
  const Trained replayed = train_recipe(recipe, "replay", replay_root.str(), net());
  EXPECT_THAT(replayed.report.refusals, IsEmpty());
  EXPECT_GE(num_replayed(replayed.report), recipe.replays * recipe.accumulate);
  expect_same_weights(*replayed.net, *eager.net);
  EXPECT_EQ(replayed.rows, eager.rows);
}

TEST_P(TrainerCompile, AResumedRunEqualsOneInEager) {
  const Recipe& recipe = GetParam();
  const Scratch eager_root, replay_root;
  const auto net = [&] { return std::make_shared<RecipeNet>(recipe.optimizer); };
  const Trained eager = train_recipe(recipe, "no", eager_root.str(), net());
  train_recipe(recipe, "replay", replay_root.str(), net(), /*stop_after=*/101);
  const Trained resumed = train_recipe(recipe, "replay", replay_root.str(), net(), 200,
                                       replay_root.str() + "/checkpoints/last");
  EXPECT_GE(num_replayed(resumed.report), (recipe.replays - 110) * recipe.accumulate);
  expect_same_weights(*resumed.net, *eager.net);
}

INSTANTIATE_TEST_SUITE_P(
    Compile, TrainerCompile,
    testing::Values(
        Recipe{.name = "AdamW"},
        Recipe{.name = "AdamClipped",
               .optimizer = levin::optim::adam({.lr = 1e-2, .amsgrad = true}),
               .clip = 0.1},
        Recipe{.name = "SgdMomentumScheduled",
               .optimizer = levin::optim::sgd({.lr = 0.05, .momentum = 0.9})
                                .schedule(levin::optim::cosine({.warmup_steps = 20})),
               .clip = 0.05,
               .clip_algorithm = "value"},
        Recipe{.name = "Accumulated",
               .optimizer = levin::optim::adamw({.lr = 1e-2})
                                .schedule(levin::optim::cosine({.warmup_steps = 3})),
               .accumulate = 3,
               .clip = 0.5,
               .replays = 100},
        Recipe{.name = "LastBatchIsSmaller", .accumulate = 2, .samples = 60, .replays = 100},
        Recipe{.name = "WithHalfTheMemory", .memory = 0.6},
        Recipe{.name = "Bf16Mixed", .precision = "bf16-mixed", .clip = 0.5},
        Recipe{.name = "Bf16WithMasterWeights",
               .optimizer = levin::optim::adamw({.lr = 1e-2}).master_weights(),
               .precision = "bf16-true"},
        Recipe{.name = "Double", .precision = "64-true"}),
    [](const auto& info) { return info.param.name; });

/// Two optimizers that take turns, as a GAN's, in a step of its own.
struct Turns : levin::Module {
  torch::nn::Linear one{nullptr}, other{nullptr};
  Turns() {
    one = register_module("one", torch::nn::Linear(6, 6));
    other = register_module("other", torch::nn::Linear(6, 3));
    automatic_optimization = false;
  }
  at::Tensor training_step(const levin::Batch& batch) override {
    const auto loss_of = [&] {
      return torch::nn::functional::cross_entropy(other(one(batch["x"]).tanh()), batch["y"]);
    };
    at::Tensor loss;
    for (int64_t i = 0; i < 2; ++i) {
      optimizer(i).toggle();
      loss = loss_of();
      optimizer(i).zero_grad();
      manual_backward(loss);
      optimizer(i).clip_grad_norm(0.5);
      optimizer(i).step();
      optimizer(i).untoggle();
      log("loss_" + std::to_string(i), loss);
    }
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::adam({.lr = 1e-2}).of(*one), levin::optim::sgd({.lr = 0.1}).of(*other)};
  }
};

TEST(TrainerCompile, OfAStepThatOptimizesByItselfEqualsEager) {
  const Scratch eager_root, replay_root;
  const Recipe recipe;
  const Trained eager = train_recipe(recipe, "no", eager_root.str(), std::make_shared<Turns>());
  const Trained replayed =
      train_recipe(recipe, "replay", replay_root.str(), std::make_shared<Turns>());
  EXPECT_THAT(replayed.report.refusals, IsEmpty());
  EXPECT_GE(num_replayed(replayed.report), 190);
  expect_same_weights(*replayed.net, *eager.net);
  EXPECT_EQ(replayed.rows, eager.rows);
}

/// The optimizers step at different times.
struct Frequencies : Turns {
  Frequencies() { automatic_optimization = true; }
  at::Tensor training_step(const levin::Batch& batch) override {
    const auto loss =
        torch::nn::functional::cross_entropy(other(one(batch["x"]).tanh()), batch["y"]);
    log("loss", loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::adam({.lr = 1e-2}).of(*one),
            levin::optim::sgd({.lr = 0.1}).of(*other).frequency(3)};
  }
};

TEST(TrainerCompile, OfOptimizersWithFrequenciesEqualsEager) {
  const Scratch eager_root, replay_root;
  const Recipe recipe;
  const Trained eager =
      train_recipe(recipe, "no", eager_root.str(), std::make_shared<Frequencies>());
  const Trained replayed =
      train_recipe(recipe, "replay", replay_root.str(), std::make_shared<Frequencies>());
  EXPECT_THAT(replayed.report.refusals, IsEmpty());
  EXPECT_GE(num_replayed(replayed.report), 150);
  expect_same_weights(*replayed.net, *eager.net);
}

// What cannot be replayed.

using StepOfBatch = std::function<at::Tensor(Net&, const levin::Batch&, int64_t)>;

struct Hindered : Net {
  StepOfBatch step;
  int64_t calls = 0;
  explicit Hindered(StepOfBatch step) : step(std::move(step)) {}
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    return step(*this, batch, index);
  }
};

struct Hindrance {
  std::string name;
  StepOfBatch step;
  std::string reason;
  std::string function;  ///< whose line it names
};
std::ostream& operator<<(std::ostream& out, const Hindrance& one) { return out << one.name; }

at::Tensor plain_loss(Net& net, const levin::Batch& batch) {
  return torch::nn::functional::cross_entropy(net.net->forward(batch["x"]), batch["y"]);
}
at::Tensor reads_its_loss(Net& net, const levin::Batch& batch, int64_t) {
  const at::Tensor loss = plain_loss(net, batch);
  return loss.item<double>() > 1.0 ? loss * 2 : loss;
}
at::Tensor logs_a_number(Net& net, const levin::Batch& batch, int64_t index) {
  net.log("index", static_cast<double>(index));
  return plain_loss(net, batch);
}
at::Tensor asks_for_the_step(Net& net, const levin::Batch& batch, int64_t) {
  return plain_loss(net, batch) * (1.0 / static_cast<double>(1 + net.global_step()));
}
at::Tensor counts_by_itself(Net& net, const levin::Batch& batch, int64_t) {
  return plain_loss(net, batch) * (1.0 / static_cast<double>(++static_cast<Hindered&>(net).calls));
}
at::Tensor weighs_its_loss(Net& net, const levin::Batch& batch, int64_t) {
  net.set_loss_weight(static_cast<double>(batch.size()));
  return plain_loss(net, batch);
}

class TrainerCompileHindered : public testing::TestWithParam<Hindrance> {};

TEST_P(TrainerCompileHindered, IsNamedAndTrainedAsItIs) {
  const Scratch eager_root, replay_root;
  const Recipe recipe;
  const auto net = [] { return std::make_shared<Hindered>(GetParam().step); };
  const Trained eager = train_recipe(recipe, "no", eager_root.str(), net());
  const Trained hindered = train_recipe(recipe, "replay", replay_root.str(), net());
  ASSERT_FALSE(hindered.report.refusals.empty());
  EXPECT_THAT(hindered.report.refusals.front(), HasSubstr(GetParam().reason));
  EXPECT_THAT(hindered.report.refusals.front(), HasSubstr(" in " + GetParam().function));
  expect_same_weights(*hindered.net, *eager.net);
  EXPECT_EQ(hindered.rows, eager.rows);
}

INSTANTIATE_TEST_SUITE_P(
    Compile, TrainerCompileHindered,
    testing::Values(
        Hindrance{"ReadsItsLoss", reads_its_loss, "the host reads the result of", "reads_its_loss"},
        Hindrance{"LogsANumber", logs_a_number, "training_step logs 'index'", "logs_a_number"},
        Hindrance{"AsksForTheStep", asks_for_the_step, "it reads global_step()",
                  "asks_for_the_step"},
        Hindrance{"CountsByItself", counts_by_itself, "its other was", "counts_by_itself"},
        Hindrance{"WeighsItsLoss", weighs_its_loss, "set_loss_weight()", "weighs_its_loss"}),
    [](const auto& info) { return info.param.name; });

// A factor of the host's that changes where the code is run again at once: eight steps an epoch, of
// which the 3rd, 4th, 6th, 10th and 18th are checks by their number.

struct WithFactor : Net {
  double factor = 1.0;
  int64_t validations = 0;
  int64_t changes_in_epoch = -1, changes_in_validation = -1;
  at::Tensor training_step(const levin::Batch& batch) override {
    return plain_loss(*this, batch) * factor;
  }
  void on_train_epoch_start() override {
    if (current_epoch() == changes_in_epoch) factor = 3.0;
  }
  void on_validation_end() override {
    if (++validations == changes_in_validation) factor = 3.0;
  }
};

/// Changes the factor after this step, and a weight.
struct WritesAWeight : levin::Callback {
  int64_t step;
  explicit WritesAWeight(int64_t step) : step(step) {}
  std::string state_key() const override { return "writes_a_weight"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module& module, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() != step + 1) return;
    const at::NoGradGuard no_grad;
    module.parameters()[0].mul_(0.5);
    dynamic_cast<WithFactor&>(module).factor = 3.0;
  }
};

/// Replayed as eager, with this in its one refusal.
void expect_found_at_once(const std::function<std::shared_ptr<WithFactor>()>& make, bool validates,
                          std::shared_ptr<levin::Callback> callback, const std::string& text) {
  const auto train = [&](const std::string& compile) {
    const Scratch root;
    auto options = quiet(root.str());
    options.accelerator = "cpu";
    if (callback) options.callbacks = {callback};
    options.enable_checkpointing = false;
    options.max_epochs = 6;
    if (validates) options.val_check_interval = 4;
    options.seed = 11;
    options.engine.compile = compile;
    levin::Trainer trainer(options);
    torch::manual_seed(3);
    const auto net = make();
    std::optional<levin::DataLoader> validation;
    if (validates) validation.emplace(dataset(16), levin::DataLoaderOptions{.batch_size = 16});
    trainer.fit(net, levin::DataLoader(dataset(64), {.batch_size = 8, .shuffle = true}),
                validation);
    return Trained{net, {}, trainer.compile_report()};
  };
  const Trained eager = train("no"), replayed = train("replay");
  expect_same_weights(*replayed.net, *eager.net);
  ASSERT_EQ(replayed.report.refusals.size(), 1U);
  EXPECT_THAT(replayed.report.refusals.front(), HasSubstr("was 1.0 and is 3.0"));
  EXPECT_THAT(replayed.report.refusals.front(), HasSubstr(text));
  EXPECT_THAT(replayed.report.refusals.front(), HasSubstr(" in "));
  EXPECT_GT(replayed.report.replayed, 10);
}

TEST(TrainerCompileCheck, ComesAtAnEpochsStart) {
  const auto make = [] {
    auto net = std::make_shared<WithFactor>();
    net->changes_in_epoch = 3;
    return net;
  };
  expect_found_at_once(make, false, nullptr, "it was last compared at step 18,");
}

TEST(TrainerCompileCheck, ComesAfterAValidation) {
  const auto make = [] {
    auto net = std::make_shared<WithFactor>();
    net->changes_in_validation = 7;  // in the middle of epoch 3
    return net;
  };
  expect_found_at_once(make, true, nullptr, "it was last compared at step 24,");
}

TEST(TrainerCompileCheck, ComesAfterACallbackWroteParameters) {
  expect_found_at_once([] { return std::make_shared<WithFactor>(); }, false,
                       std::make_shared<WritesAWeight>(20), "it was last compared at step 18,");
}

TEST(TrainerCompileCheck, MayEndTheRun) {
  const Scratch root;
  auto options = quiet(root.str());
  options.accelerator = "cpu";
  options.enable_checkpointing = false;
  options.max_epochs = 6;
  options.engine.compile = "replay";
  options.engine.compile_check_policy = "stop";
  levin::Trainer trainer(options);
  const auto net = std::make_shared<WithFactor>();
  net->changes_in_epoch = 3;
  const std::string error =
      error_of([&] { trainer.fit(net, levin::DataLoader(dataset(64), {.batch_size = 8})); });
  EXPECT_THAT(error, HasSubstr("graph.check"));
  EXPECT_THAT(error, HasSubstr("at step 24 it differs"));
}

TEST(TrainerCompile, AnOptimizerThatComputesOnTheHostIsNamed) {
  const Scratch eager_root, replay_root;
  Recipe recipe;
  recipe.optimizer =
      levin::optim::torch_optimizer<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01));
  const auto net = [&] { return std::make_shared<RecipeNet>(recipe.optimizer); };
  const Trained eager = train_recipe(recipe, "no", eager_root.str(), net());
  const Trained hindered = train_recipe(recipe, "replay", replay_root.str(), net());
  ASSERT_FALSE(hindered.report.refusals.empty());
  EXPECT_THAT(hindered.report.refusals.front(), HasSubstr("computes on the host in each step"));
  expect_same_weights(*hindered.net, *eager.net);
}

TEST(TrainerCompile, WhatCannotBeIsAnErrorAtTheStart) {
  const auto error_with = [](const auto& set) {
    levin::TrainerOptions options = quiet(".");
    options.accelerator = "cpu";
    options.engine.compile = "replay";
    set(options);
    return error_of([&] { const levin::Trainer trainer(options); });
  };
  EXPECT_THAT(error_with([](auto& o) { o.engine.compile = "replya"; }),
              HasSubstr("wanted no or replay"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.activation_memory_budget = 0; }),
              HasSubstr("accelerator.compile: got activation_memory_budget = 0"));
  EXPECT_THAT(error_with([](auto& o) { o.precision = "16-mixed"; }), HasSubstr("bf16-mixed"));
  EXPECT_THAT(error_with([](auto& o) { o.detect_anomaly = true; }),
              HasSubstr("trainer.options: --detect-anomaly"));
  EXPECT_THAT(error_with([](auto& o) { o.engine.loss_guard.nan_policy = "skip"; }),
              HasSubstr("--nan-policy"));
}

/// What `levin plan` asks a program for: the graph of its step, and the run ends.
TEST(TrainerCompile, WritesItsGraphInPlaceOfTraining) {
  const Scratch scratch;
  const auto child = [&] {
    at::set_num_threads(1);  // a fork has none of the threads that were there before it
    ::setenv("LEVIN_GRAPH_TO", (scratch.path() / "step.safetensors").c_str(), 1);
    Recipe recipe;
    recipe.accumulate = 3;
    train_recipe(recipe, "no", scratch.str(), std::make_shared<RecipeNet>(recipe.optimizer));
    std::_Exit(9);  // it trained
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "the graph of the training step is in");
  const auto step = levin::graph::GraphModule::load(scratch.path() / "step.safetensors");
  EXPECT_EQ(step.graph().find_nodes("aten::_fused_adamw_.tensor_lr").size(), 1U);
  EXPECT_FALSE(step.graph().find_nodes("aten::native_batch_norm").empty());
  std::vector<std::string> names;
  for (const auto& state : step.state()) names.push_back(state.name);
  EXPECT_THAT(names, testing::Contains("net.0.weight"));
  EXPECT_THAT(names, testing::Contains("exp_avg of net.0.weight"));
  // The last batch of a group of 3: its inputs, and the gradients so far.
  EXPECT_EQ(step.graph().find_nodes(levin::graph::Opcode::kPlaceholder).size(), 2U + 6U);
}

/// 2 ranks, replayed and in eager: the same bits.
TEST(TrainerCompile, OfRanksEqualsEager) {
  const auto words = run_world(2, [](int64_t rank, const fs::path& folder) -> std::string {
    const auto train = [&](const std::string& compile) {
      auto options = quiet(folder.string());
      options.accelerator = "cpu";
      options.enable_checkpointing = false;
      options.seed = 11;
      options.engine.sync_batchnorm = true;
      options.max_epochs = 20;
      options.accumulate_grad_batches = 2;
      options.gradient_clip_val = 0.5;
      options.engine.compile = compile;
      levin::Trainer trainer(options);
      const auto net = std::make_shared<Net>();
      trainer.fit(net, levin::DataLoader(dataset(96), {.batch_size = 6, .shuffle = true}));
      levin::save_weights(folder / (compile + std::to_string(rank) + ".safetensors"),
                          levin::module_state(*net));
      return trainer.compile_report();
    };
    train("no");
    const auto report = train("replay");
    if (num_replayed(report) < 140) return "replayed " + std::to_string(report.replayed);
    if (!report.refusals.empty()) return report.refusals.front();
    const auto file = [&](const std::string& compile) {
      return levin::load_weights(folder / (compile + std::to_string(rank) + ".safetensors"));
    };
    const auto eager = file("no"), replayed = file("replay");
    for (const auto& [name, value] : eager.values()) {
      if (!torch::equal(eager.tensor(name), replayed.tensor(name))) return name + " differs";
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
