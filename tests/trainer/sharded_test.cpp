// Runs under fsdp and zero are runs under ddp: precisions, clipping, accumulation, several optimizers,
// frozen parts, averaged weights, activation checkpoints, models built without memory, resumed under
// another strategy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/activation_checkpoint.h"
#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/replayed.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace sharded {
namespace {

using namespace small_run;  // NOLINT
using levin::State;
using levin::test::run_world;
using ::testing::Each;

struct Classifier : Net {
  bool checkpoints = false;  ///< activations
  bool by_adam = false;
  std::optional<levin::OptimizerConfig> config;  ///< another optimizer

  Classifier() : Net(0.0) {
    levin::wrap(net->ptr(0));
    levin::wrap(net->ptr(4));
  }
  at::Tensor training_step(const levin::Batch& batch) override {
    const auto forward = [this](const at::Tensor& x) { return net->forward(x); };
    const at::Tensor logits =
        checkpoints ? levin::activation_checkpoint(forward, batch["x"]) : forward(batch["x"]);
    const at::Tensor loss = torch::nn::functional::cross_entropy(logits, batch["y"]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    // A batch norm follows net.0.bias, whose gradient is rounding error alone: a small eps would make
    // steps of it.
    if (by_adam) return levin::optim::adamw({.lr = 1e-2, .eps = 1e-3});
    if (config) return *config;
    return levin::optim::sgd({.lr = 0.1, .momentum = 0.9});
  }
};

/// Keeps a moving average of the weights and evaluates with that.
struct Averaged : levin::Callback {
  std::vector<at::Tensor> averages, trained;
  std::string state_key() const override { return "averaged"; }
  void on_train_batch_end(levin::Trainer&, levin::Module& module, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> parameters = module.parameters();
    if (averages.empty()) {
      for (const at::Tensor& parameter : parameters) averages.push_back(parameter.clone());
    }
    for (size_t i = 0; i < parameters.size(); ++i) averages[i].lerp_(parameters[i], 0.5);
  }
  void on_evaluation_start(levin::Trainer&, levin::Module& module, std::string_view) override {
    const at::NoGradGuard no_grad;
    trained.clear();
    for (at::Tensor& parameter : module.parameters()) {
      trained.push_back(parameter.clone());
      if (!averages.empty()) parameter.copy_(averages[trained.size() - 1]);
    }
  }
  void on_evaluation_end(levin::Trainer&, levin::Module& module, std::string_view) override {
    const at::NoGradGuard no_grad;
    size_t i = 0;
    for (at::Tensor& parameter : module.parameters()) parameter.copy_(trained[i++]);
  }
};

struct Case {
  std::string name;
  void (*change)(levin::TrainerOptions&, Classifier&) = [](levin::TrainerOptions&, Classifier&) {};
  bool on_meta = false;
  double tolerance = 1e-6;
  bool is_replayed = true;  ///< under --compile replay
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

struct Way {
  std::string strategy = "ddp";
  std::string backend = "shm";
  int64_t zero_stage = 2;
  std::string mesh = {};
  std::string compile = "no";
};

/// What a run of two epochs logs and leaves behind, whole.
State trained(const Case& c, const Way& way, const fs::path& root,
              levin::graph::CompiledReport* report = nullptr) {
  torch::manual_seed(9);
  const auto net = c.on_meta ? levin::init_on_meta([] { return std::make_shared<Classifier>(); })
                             : std::make_shared<Classifier>();
  auto options =
      quiet((root / (way.strategy + way.backend + std::to_string(way.zero_stage))).string());
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  options.seed = 4;
  options.strategy = way.strategy;
  options.engine.comm.backend = way.backend;
  options.engine.fsdp.zero_stage = way.zero_stage;
  options.engine.fsdp.mesh = way.mesh;
  options.engine.compile = way.compile;
  c.change(options, *net);
  levin::Trainer trainer(options);
  trainer.fit(net, levin::DataLoader(dataset(96), {.batch_size = 8, .shuffle = true}),
              levin::DataLoader(dataset(30, 6), {.batch_size = 7}));
  if (report != nullptr) *report = trainer.compile_report();
  State all = levin::full(*net);
  all.set("logged val_acc", at::scalar_tensor(trainer.callback_metrics().at("val_acc")));
  all.set("logged loss", at::scalar_tensor(trainer.callback_metrics().at("loss")));
  return all;
}

std::string difference(const State& got, const State& wanted, double tolerance) {
  if (got.values().size() != wanted.values().size()) return "other names";
  for (const auto& [name, value] : wanted.values()) {
    const double off = (got.tensor(name).to(at::kDouble) - wanted.tensor(name).to(at::kDouble))
                           .abs()
                           .max()
                           .item<double>();
    if (!(off <= tolerance)) return c10::str(name, " is off by ", off);
  }
  return "";
}

class ShardedTraining : public ::testing::TestWithParam<Case> {};

TEST_P(ShardedTraining, EqualsDdp) {
  const Case& c = GetParam();
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
    const State wanted = trained(c, {}, folder);
    for (const Way& way : {Way{"fsdp"}, Way{"fsdp", "gloo"}, Way{"zero", "shm", 1},
                           Way{"zero", "gloo", 2}, Way{"zero", "gloo", 3}}) {
      const std::string off = difference(trained(c, way, folder), wanted, c.tolerance);
      if (!off.empty()) {
        return c10::str(way.strategy, way.zero_stage, " over ", way.backend, ": ", off);
      }
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

// A step that is replayed gives the bits of an eager one.
TEST_P(ShardedTraining, ReplayedEqualsEager) {
  const Case& c = GetParam();
  if (c.name == "Fp16Mixed")
    GTEST_SKIP() << "a recorded step cannot check whether gradients are finite";
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
    std::string all;
    for (Way way : {Way{"fsdp"}, Way{"zero", "shm", 1}, Way{"zero", "shm", 3}, Way{"fsdp", "gloo"},
                    Way{"zero", "gloo", 2}}) {
      const State wanted = trained(c, way, folder);
      way.compile = "replay";
      levin::graph::CompiledReport report;
      const std::string off = difference(trained(c, way, folder, &report), wanted, 0);
      const int64_t replayed = levin::test::num_replayed(report);
      if (!off.empty()) all += way.strategy + std::to_string(way.zero_stage) + ": " + off + "; ";
      if (c.is_replayed != (replayed > 0)) {
        all += way.strategy + ": " + std::to_string(replayed) + " steps are replayed; ";
      }
      // Ranks that share memory read gradients where they were computed.
      for (const levin::graph::ReplayReport& each : report.replays) {
        if ((way.backend == "shm") == (each.num_exchanged > 0)) continue;
        all += way.strategy + " over " + way.backend + ": " + std::to_string(each.num_exchanged) +
               " tensors in exchange memory; ";
      }
    }
    return all;
  });
  EXPECT_THAT(words, Each(""));
}

// Activations are computed again; collectives stay as they are, in their order.
TEST(Sharded, ABudgetOfAReplayNeedsLessMemoryAndGivesTheSameBits) {
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
    Case c{.name = "Budget"};
    const Way eager{"fsdp", "gloo"};
    Way way = eager;
    way.compile = "replay";
    const State wanted = trained(c, eager, folder);
    std::vector<int64_t> bytes;
    for (const double budget : {1.0, 0.5}) {
      c.change = budget == 1.0 ? c.change : [](levin::TrainerOptions& o, Classifier&) {
        o.engine.activation_memory_budget = 0.5;
      };
      levin::graph::CompiledReport report;
      const std::string off = difference(trained(c, way, folder, &report), wanted, 0);
      if (!off.empty()) return c10::str("budget ", budget, ": ", off);
      if (report.replays.empty()) return "nothing is replayed";
      bytes.push_back(report.replays.front().needed_bytes);
    }
    return bytes[1] < bytes[0] ? "" : c10::str(bytes[0], " bytes became ", bytes[1]);
  });
  EXPECT_THAT(words, Each(""));
}

// HSDP on four ranks.
TEST_P(ShardedTraining, OnTwoCopiesEqualsDdp) {
  const Case& c = GetParam();
  const auto words = run_world(4, [&](int64_t, const fs::path& folder) -> std::string {
    const State wanted = trained(c, {}, folder);
    for (const Way& way : {Way{"fsdp", "shm", 2, "replicate=2,fsdp=2"},
                           Way{"fsdp", "gloo", 2, "replicate=2,fsdp=2"}}) {
      const std::string off = difference(trained(c, way, folder), wanted, c.tolerance);
      if (!off.empty()) return way.backend + ": " + off;
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Sharded, OptimizersOfWholeMatricesAreRefused) {
  for (const levin::OptimizerConfig& config :
       {levin::OptimizerConfig(levin::optim::muon()).parameters("*.weight"),
        levin::OptimizerConfig(levin::optim::adafactor())}) {
    const auto words = run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
      std::string all;
      for (const Way& way : {Way{"fsdp"}, Way{"zero", "shm", 1}}) {
        auto options = quiet((folder / way.strategy).string());
        options.strategy = way.strategy;
        options.engine.fsdp.zero_stage = way.zero_stage;
        options.enable_checkpointing = false;
        options.max_epochs = 1;
        const auto net = std::make_shared<Classifier>();
        net->config = config;
        all += levin::test::error_of([&] {
          levin::Trainer(options).fit(net, levin::DataLoader(dataset(16), {.batch_size = 8}));
        });
      }
      return all;
    });
    EXPECT_THAT(words, Each(::testing::ContainsRegex(
                           "optim.sharded: (muon|adafactor) computes with whole matrices.*"
                           "optim.sharded: (muon|adafactor) computes with whole matrices")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ShardedTraining,
    ::testing::Values(
        Case{.name = "Plain"},
        Case{.name = "Adam",
             .change = [](auto&, Classifier& net) { net.by_adam = true; },
             .tolerance = 1e-5},
        Case{.name = "NAdam",
             .change =
                 [](auto&, Classifier& net) {
                   net.config = levin::optim::nadam({.lr = 1e-2, .eps = 1e-3});
                 },
             .tolerance = 1e-5,
             .is_replayed = false},
        Case{.name = "RmspropWithDecayOfWeights",
             .change =
                 [](auto&, Classifier& net) {
                   net.config =
                       levin::optim::rmsprop({.lr = 1e-3, .eps = 1e-2, .weight_decay = 0.1})
                           .decay_only_weights();
                 },
             .tolerance = 1e-5,
             .is_replayed = false},
        Case{.name = "ClippedByNorm",
             .change = [](levin::TrainerOptions& o, Classifier&) { o.gradient_clip_val = 0.05; }},
        Case{.name = "ClippedByValue",
             .change =
                 [](levin::TrainerOptions& o, Classifier&) {
                   o.gradient_clip_val = 0.01;
                   o.gradient_clip_algorithm = "value";
                 }},
        Case{.name = "Accumulated",
             .change =
                 [](levin::TrainerOptions& o, Classifier&) {
                   o.accumulate_grad_batches = 4;  // the last group of an epoch is short
                   o.gradient_clip_val = 0.5;
                 },
             .is_replayed = false},
        Case{.name = "Bf16Mixed",
             .change = [](levin::TrainerOptions& o, Classifier&) { o.precision = "bf16-mixed"; }},
        Case{.name = "Bf16True",
             .change = [](levin::TrainerOptions& o, Classifier&) { o.precision = "bf16-true"; },
             .tolerance = 2e-2,
             .is_replayed = false},
        Case{.name = "Bf16TrueWithMasterWeights",
             .change =
                 [](levin::TrainerOptions& o, Classifier& net) {
                   net.by_adam = true;
                   o.precision = "bf16-true";
                   o.engine.master_weights = true;
                 },
             .tolerance = 2e-2},
        Case{.name = "Fp16Mixed",
             .change = [](levin::TrainerOptions& o, Classifier&) { o.precision = "16-mixed"; },
             .tolerance = 1e-4},
        Case{.name = "SyncBatchNorm",
             .change = [](levin::TrainerOptions& o,
                          Classifier&) { o.engine.sync_batchnorm = true; }},
        Case{.name = "FrozenPart",
             .change =
                 [](levin::TrainerOptions&, Classifier& net) {
                   for (at::Tensor& parameter : net.net->ptr(0)->parameters()) {
                     parameter.requires_grad_(false);
                   }
                 }},
        Case{.name = "ActivationCheckpoint",
             .change = [](auto&, Classifier& net) { net.checkpoints = true; }},
        Case{.name = "AveragedWeights",
             .change =
                 [](levin::TrainerOptions& o, Classifier&) {
                   o.callbacks = {std::make_shared<Averaged>()};
                   o.val_check_interval = 3;
                 }},
        Case{.name = "WeightAveraging",
             .change =
                 [](levin::TrainerOptions& o, Classifier&) {
                   o.callbacks = {levin::weight_averaging({.decay = 0.5})};
                   o.val_check_interval = 3;
                 }},
        Case{.name = "WithoutMemory", .on_meta = true}),
    [](const auto& info) { return info.param.name; });

/// A rank that gives no loss for some batches of a group.
struct Skipping : Classifier {
  bool skips_all = false;  ///< on every rank at the same time
  int64_t rank = 0;
  using Classifier::training_step;
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    if (index % 2 == 1 && (skips_all || rank == 1)) return {};
    return Classifier::training_step(batch);
  }
};

State trained_skipping(const Way& way, bool skips_all, int64_t rank, const fs::path& root,
                       double gathered_mb = levin::FsdpOptions().gathered_mb) {
  torch::manual_seed(9);
  const auto net = std::make_shared<Skipping>();
  net->skips_all = skips_all;
  net->rank = rank;
  auto options = quiet((root / (way.strategy + way.backend)).string());
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  options.seed = 4;
  options.accumulate_grad_batches = 4;
  options.strategy = way.strategy;
  options.engine.comm.backend = way.backend;
  options.engine.fsdp.gathered_mb = gathered_mb;
  levin::Trainer trainer(options);
  trainer.fit(net, levin::DataLoader(dataset(128), {.batch_size = 8}));
  return levin::full(*net);
}

TEST(ShardedSkippedBatches, EqualDdpWhereNothingIsGatheredAnewOrAllRanksSkipTheSame) {
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    const auto off_ddp = [&](const Way& way, bool skips_all, double gathered_mb) {
      const fs::path root = folder / (skips_all ? "all" : "one");
      const State wanted = trained_skipping({}, skips_all, rank, root);
      return difference(trained_skipping(way, skips_all, rank, root, gathered_mb), wanted, 1e-6);
    };
    constexpr double kOneUnit = 1e-6;
    const std::string all[] = {off_ddp({"fsdp"}, false, 0), off_ddp({"fsdp"}, true, 0),
                               off_ddp({"fsdp", "gloo"}, false, -1),
                               off_ddp({"fsdp", "gloo"}, true, kOneUnit)};
    for (const std::string& off : all) {
      if (!off.empty()) return c10::str(&off - all, ": ", off);
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShardedSkippedBatches, AreAnErrorWhereParametersAreGatheredAndOneRankSkips) {
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    const std::string error = levin::test::error_of(
        [&] { trained_skipping({"fsdp", "gloo"}, /*skips_all=*/false, rank, folder, 1e-6); });
    return error.find("comm.") != std::string::npos ? "" : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

/// Two optimizers and a step that optimizes by itself, within forward.
struct Gan : levin::Module {
  torch::nn::Sequential generator{nullptr}, critic{nullptr};

  Gan() {
    torch::manual_seed(4);
    generator = register_module(
        "generator", torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8),
                                           torch::nn::ReLU(), torch::nn::Linear(8, 6)));
    critic = register_module("critic",
                             torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::LeakyReLU(),
                                                   torch::nn::Linear(8, 1)));
    automatic_optimization = false;
  }
  at::Tensor says(const at::Tensor& samples, double truth) {
    const at::Tensor scores = critic->forward(samples);
    return torch::binary_cross_entropy_with_logits(scores, torch::full_like(scores, truth));
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    optimizer(1).zero_grad();
    const at::Tensor fake = generator->forward(batch["x"]);
    manual_backward(says(batch["x"].square(), 1) + says(fake.detach(), 0));
    optimizer(1).step();
    optimizer(0).zero_grad();
    optimizer(0).toggle();
    const at::Tensor loss = says(generator->forward(batch["x"]), 1);
    manual_backward(loss);
    optimizer(0).step();
    optimizer(0).untoggle();
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::sgd({.lr = 0.05}).of(*generator),
            levin::optim::sgd({.lr = 0.05}).of(*critic)};
  }
};

TEST(ShardedGan, EqualsDdp) {
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
    const auto weights = [&](const Way& way) {
      auto options = quiet((folder / (way.strategy + way.backend)).string());
      options.enable_checkpointing = false;
      options.max_epochs = 2;
      options.seed = 4;
      options.strategy = way.strategy;
      options.engine.comm.backend = way.backend;
      levin::Trainer trainer(options);
      const auto gan = std::make_shared<Gan>();
      trainer.fit(gan, levin::DataLoader(dataset(48), {.batch_size = 8}));
      return levin::full(*gan);
    };
    const State wanted = weights({});
    for (const Way& way : {Way{"fsdp"}, Way{"fsdp", "gloo"}}) {
      const std::string off = difference(weights(way), wanted, 1e-6);
      if (!off.empty()) return way.backend + ": " + off;
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

/// A run that is saved under one strategy and number of ranks goes on under others.
TEST(ShardedResume, GoesOnUnderOtherStrategiesAndNumbersOfRanks) {
  struct Stage {
    Way way;
    int64_t ranks, max_steps;
  };
  const auto run = [](const Stage& stage, const fs::path& root) {
    return run_world(stage.ranks, [&](int64_t rank, const fs::path&) -> std::string {
      torch::manual_seed(9);
      const auto net = std::make_shared<Classifier>();
      net->by_adam = true;
      auto options = quiet(root.string());
      options.max_steps = stage.max_steps;
      options.seed = 4;
      options.engine.sync_batchnorm = true;
      options.strategy = stage.way.strategy;
      if (stage.ranks > 1) options.engine.comm.backend = stage.way.backend;
      options.callbacks = {levin::model_checkpoint(
          {.dirpath = (root / "checkpoints").string(), .every_n_train_steps = 5})};
      options.ckpt_path = fs::exists(root / "checkpoints") ? "last" : "";
      levin::Trainer trainer(options);
      trainer.fit(
          net, levin::DataLoader(dataset(96), {.batch_size = 12 / stage.ranks, .shuffle = true}));
      const State all = levin::full(*net);
      if (rank == 0) levin::save_weights(root / "weights.safetensors", all);
      return trainer.global_step() == stage.max_steps ? "" : "steps";
    });
  };
  const Scratch disturbed, whole;
  for (const Stage& stage :
       {Stage{{"fsdp"}, 2, 5}, Stage{{"ddp"}, 3, 10}, Stage{{"fsdp", "gloo"}, 4, 15},
        Stage{{"auto"}, 1, 20}, Stage{{"zero", "shm"}, 3, 24}}) {
    ASSERT_THAT(run(stage, disturbed.path()), Each("")) << stage.way.strategy << stage.ranks;
  }
  ASSERT_THAT(run({{"auto"}, 1, 24}, whole.path()), Each(""));
  EXPECT_EQ(off_by(disturbed / "weights.safetensors", whole / "weights.safetensors", 1e-5), "");
}

}  // namespace
}  // namespace sharded
