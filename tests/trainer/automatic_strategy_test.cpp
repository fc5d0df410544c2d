// --strategy auto on several ranks: the strategy follows from a memory that is given, all ranks choose
// the same, and the run is that of the strategy named, bit for bit. tests/strategy/forecast/automatic_test.cpp
// has the bytes.
#include "levin/accelerator/engine/automatic_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "levin/accelerator/accelerator.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/files/read_file.h"
#include "levin/graph/meta/init_on_meta.h"
#include "levin/graph/record/trace.h"
#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace automatic {
namespace {

using namespace small_run;  // NOLINT
using levin::State;
using levin::test::run_world;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kWidth = 64;
constexpr int64_t kLayers = 8;
constexpr double kLayer = kWidth * kWidth * 4;  // bytes

/// So many layers of memory, beside what is left for activations.
double gigabytes(double layers) {
  return layers * kLayer / (1.0 - levin::forecast::kPartForActivations) / 1e9;
}

struct Deep : levin::Module {
  torch::nn::Sequential net{nullptr};
  std::optional<levin::OptimizerConfig> config;

  Deep() {
    net = register_module("net", torch::nn::Sequential());
    for (int64_t i = 0; i < kLayers; ++i) {
      net->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
      levin::wrap(net->ptr(static_cast<size_t>(i)));
    }
  }
  at::Tensor training_step(const levin::Batch& batch) override {
    return net->forward(batch["x"]).square().mean();
  }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return net->forward(batch["x"]);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return config ? *config : levin::optim::adamw({.lr = 1e-3});
  }
};

std::shared_ptr<levin::Dataset> samples() {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  return levin::test::off_disk(
      levin::data::tensors({{"x", torch::randn({64, kWidth}, generator)}}));
}

levin::DataLoader loader() { return {samples(), {.batch_size = 4, .shuffle = true}}; }

struct Case {
  std::string name;
  double memory;         ///< layers
  std::string expected;  ///< "zero 1"
  std::string backend = "shm";
  int64_t ranks = 2;
  void (*change)(levin::TrainerOptions&, Deep&) = [](levin::TrainerOptions&, Deep&) {};
  bool on_meta = false;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::string chosen_by(levin::Accelerator& accelerator) {
  const levin::AcceleratorOptions& options = accelerator.options();
  if (options.strategy == "auto")
    return std::string(levin::engine_of(accelerator).strategy().name());
  EXPECT_EQ(levin::engine_of(accelerator).strategy().name(), options.strategy);
  const std::string stage =
      options.strategy == "zero" ? " " + std::to_string(options.engine.fsdp.zero_stage) : "";
  return options.strategy + stage;
}

struct Trained {
  std::string strategy;
  State weights;
};

Trained trained(const Case& c, const std::string& strategy, int64_t stage, const fs::path& root) {
  torch::manual_seed(9);
  const auto net = c.on_meta ? levin::init_on_meta([] { return std::make_shared<Deep>(); })
                             : std::make_shared<Deep>();
  auto options = quiet((root / strategy).string());
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  options.seed = 4;
  options.strategy = strategy;
  options.engine.comm.backend = c.backend;
  options.engine.fsdp.zero_stage = stage;
  if (strategy == "auto") options.engine.max_memory_gb = gigabytes(c.memory);
  c.change(options, *net);
  levin::Trainer trainer(options);
  trainer.fit(net, loader());
  return {chosen_by(trainer.accelerator()), levin::full(*net)};
}

std::string difference(const State& got, const State& wanted) {
  if (got.values().size() != wanted.values().size()) return "other names";
  for (const auto& [name, value] : wanted.values()) {
    if (!torch::equal(got.tensor(name), wanted.tensor(name))) return name + " differs";
  }
  return "";
}

class AutomaticStrategy : public ::testing::TestWithParam<Case> {};

// What the rank chose, and how it differs from the strategy named.
TEST_P(AutomaticStrategy, IsChosenByTheMemoryAndTrainsAsTheOneNamed) {
  const Case& c = GetParam();
  const auto words = run_world(c.ranks, [&](int64_t, const fs::path& folder) {
    const Trained automatic = trained(c, "auto", 2, folder);
    const bool is_zero = c.expected.starts_with("zero");
    const Trained named =
        trained(c, is_zero ? "zero" : c.expected, is_zero ? c.expected.back() - '0' : 2, folder);
    return automatic.strategy + difference(automatic.weights, named.weights);
  });
  EXPECT_THAT(words, Each(c.expected));
}

INSTANTIATE_TEST_SUITE_P(
    All, AutomaticStrategy,
    ::testing::Values(
        Case{.name = "OneRank", .memory = 100, .expected = "single", .ranks = 1},
        Case{.name = "EnoughForDdp", .memory = 34, .expected = "ddp"},
        Case{.name = "NotEnoughForDdp", .memory = 32, .expected = "zero 1"},
        Case{.name = "NotEvenForParameters", .memory = 6, .expected = "zero 1"},
        Case{.name = "EnoughForDdpOnFourRanks", .memory = 34, .expected = "ddp", .ranks = 4},
        Case{.name = "NotEnoughForDdpOnFourRanks", .memory = 15, .expected = "zero 1", .ranks = 4},
        Case{.name = "EnoughForGatheredParameters",
             .memory = 29,
             .expected = "zero 1",
             .backend = "gloo"},
        Case{.name = "NotEnoughForGatheredParameters",
             .memory = 27,
             .expected = "fsdp",
             .backend = "gloo"},
        Case{.name = "NotEnoughForGatheredParametersOnFourRanks",
             .memory = 17,
             .expected = "fsdp",
             .backend = "gloo",
             .ranks = 4},
        Case{.name = "OptimizerWithoutState",
             .memory = 20,
             .expected = "ddp",
             .change = [](levin::TrainerOptions&,
                          Deep& net) { net.config = levin::optim::sgd({.lr = 0.1}); }},
        Case{.name = "FrozenParameters",
             .memory = 16,
             .expected = "ddp",
             .change =
                 [](levin::TrainerOptions&, Deep& net) {
                   for (size_t i = 0; i < 6; ++i) {
                     for (at::Tensor& p : net.net->ptr(i)->parameters()) p.set_requires_grad(false);
                   }
                 }},
        Case{.name = "OffloadedState",
             .memory = 20,
             .expected = "ddp",
             .change =
                 [](levin::TrainerOptions& options, Deep&) {
                   options.engine.offload = {.state = "optimizer", .tmpfs = true};
                 }},
        Case{.name = "OffloadedParameters",
             .memory = 100,
             .expected = "fsdp",
             .change =
                 [](levin::TrainerOptions& options, Deep&) {
                   options.engine.offload = {.state = "parameters", .tmpfs = true};
                 }},
        Case{.name = "AccumulatedBatches",
             .memory = 25,
             .expected = "zero 2",
             .change = [](levin::TrainerOptions& options,
                          Deep&) { options.accumulate_grad_batches = 4; }},
        Case{.name = "Replayed",
             .memory = 20,
             .expected = "zero 1",
             .change = [](levin::TrainerOptions& options,
                          Deep&) { options.engine.compile = "replay"; }},
        Case{.name = "ReplayedOverGloo",
             .memory = 27,
             .expected = "fsdp",
             .backend = "gloo",
             .change = [](levin::TrainerOptions& options,
                          Deep&) { options.engine.compile = "replay"; }},
        Case{.name = "HalfParameters",
             .memory = 20,
             .expected = "ddp",
             .change = [](levin::TrainerOptions& options,
                          Deep&) { options.precision = "bf16-true"; }},
        Case{.name = "BuiltOnMeta", .memory = 31, .expected = "zero 1", .on_meta = true},
        Case{.name = "BuiltOnMetaNotEvenForParameters",
             .memory = 6,
             .expected = "zero 1",
             .on_meta = true}),
    [](const auto& info) { return info.param.name; });

// Runs that were saved under one strategy go on under the one that the memory of the next gives.
TEST(AutomaticStrategy, GoesOnFromACheckpointOfAnother) {
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) {
    std::string strategies;
    const auto run = [&](const std::string& root, double memory, int64_t epochs,
                         const std::string& ckpt) {
      torch::manual_seed(9);
      const auto net = std::make_shared<Deep>();
      net->config = levin::optim::sgd({.lr = 0.1, .momentum = 0.9});
      auto options = quiet((folder / root).string());
      options.max_epochs = epochs;
      options.seed = 4;
      options.engine.max_memory_gb = gigabytes(memory);
      options.ckpt_path = ckpt;
      options.callbacks = {levin::model_checkpoint(
          {.dirpath = (folder / root / "ckpt").string(), .save_last = true})};
      levin::Trainer trainer(options);
      trainer.fit(net, loader());
      strategies += chosen_by(trainer.accelerator()) + "; ";
      return levin::full(*net);
    };
    const State wanted = run("whole", 100, 3, "");
    run("parts", 15, 1, "");
    run("parts", 100, 2, "last");
    const State got = run("parts", 15, 3, "last");
    for (const auto& [name, value] : wanted.values()) {
      if (!torch::allclose(got.tensor(name), wanted.tensor(name), 1e-5, 1e-6))
        return name + " differs";
    }
    return strategies;
  });
  EXPECT_THAT(words, Each("ddp; zero 1; ddp; zero 1; "));
}

// An Accelerator's strategy follows from all that one call prepares; else Adam's state is assumed.
TEST(AutomaticStrategy, OfAnAcceleratorFollowsFromItsOptimizer) {
  const auto words = run_world(2, [&](int64_t, const fs::path&) {
    levin::Accelerator accelerator({.engine = {.max_memory_gb = gigabytes(20)}});
    std::string all;
    const auto run = [&](const auto& prepare) {
      const auto net = std::make_shared<Deep>();
      auto [model, optimizer] = prepare(net);
      const at::Tensor loss = model->training_step({{"x", torch::ones({2, kWidth})}});
      accelerator.backward(loss);
      optimizer.step();
      all += chosen_by(accelerator) + "; ";
      accelerator.free_memory();
    };
    run([&](const auto& net) { return accelerator.prepare(net, levin::optim::sgd({.lr = 0.1})); });
    run([&](const auto& net) { return accelerator.prepare(net, levin::optim::adamw({})); });
    run([&](const auto& net) {
      auto [model] = accelerator.prepare(net);
      auto [optimizer] = accelerator.prepare(levin::optim::sgd({.lr = 0.1}));
      return std::tuple(model, optimizer);
    });
    return all;
  });
  EXPECT_THAT(words, Each("ddp; zero 1; zero 1; "));
}

// A run that only evaluates keeps nothing but parameters.
TEST(AutomaticStrategy, OfAnEvaluationCountsParametersAlone) {
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) {
    std::string all;
    for (const double memory : {9.0, 7.0}) {
      auto options = quiet(folder.string());
      options.engine.max_memory_gb = gigabytes(memory);
      levin::Trainer trainer(options);
      trainer.predict(std::make_shared<Deep>(), loader());
      all += chosen_by(trainer.accelerator()) + "; ";
    }
    return all;
  });
  EXPECT_THAT(words, Each("ddp; zero 1; "));
}

/// What this run says of the strategy.
std::vector<std::string> said(const Case& c, const fs::path& folder) {
  std::mutex mutex;
  std::vector<std::string> lines;
  const auto before = levin::log::set_sink([&](levin::log::Level level, std::string_view text) {
    const std::lock_guard lock(mutex);
    if (text.find("strategy auto") == std::string_view::npos) return;
    lines.push_back((level == levin::log::Level::kWarn ? "warning: " : "") + std::string(text));
  });
  trained(c, "auto", 2, folder);
  levin::log::set_sink(before);
  return lines;
}

TEST(AutomaticStrategy, IsSaidInOneLineByRankZero) {
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    std::vector<std::string> lines;
    for (const double memory : {20.0, 6.0}) {
      for (auto& line : said({.name = "", .memory = memory, .expected = ""}, folder)) {
        lines.push_back(std::move(line));
      }
    }
    if (rank != 0) return lines.empty() ? "" : "rank 1 says " + lines.front();
    if (lines.size() != 2) return std::to_string(lines.size()) + " lines";
    const bool fits = lines[0].find("strategy auto: zero 1 on fsdp=2: a rank needs") == 0 &&
                      lines[0].find("ddp on dp=2 would need") != std::string::npos;
    const bool warns =
        lines[1].find("warning: strategy auto: zero 1 on fsdp=2: no strategy fits") == 0 &&
        lines[1].find("--offload") != std::string::npos;
    return fits && warns ? "" : lines[0] + "\n" + lines[1];
  });
  EXPECT_THAT(words, Each(""));
}

/// What `levin plan --strategy auto` reckons from the step that the same program records without memory.
TEST(AutomaticStrategy, IsThatOfAPlan) {
  const Scratch scratch;
  const auto child = [&] {
    at::set_num_threads(1);  // a fork has none of the threads that were there before it
    ::setenv("LEVIN_GRAPH_TO", (scratch.path() / "step.safetensors").c_str(), 1);
    ::setenv("LEVIN_GRAPH_WITHOUT_MEMORY", "1", 1);
    ::setenv("LEVIN_PLAN_TO", (scratch.path() / "model.json").c_str(), 1);
    trained({.name = "", .memory = 20, .expected = ""}, "auto", 2, scratch.path());
    std::_Exit(9);  // it trained
  };
  ASSERT_EXIT(child(), testing::ExitedWithCode(0), "the graph of the training step is in");
  const auto description =
      levin::forecast::description_of(levin::files::read_file(scratch.path() / "model.json"));
  const auto step = levin::forecast::recorded_step(
      levin::graph::GraphModule::load(scratch.path() / "step.safetensors").graph(), description);
  levin::forecast::Cluster cluster = levin::forecast::read_cluster("cpu");
  for (const double memory : {34.0, 20.0}) {
    const auto planned = levin::forecast::choose_unrecorded(description, step.state_bytes,
                                                            levin::forecast::automatic_settings(2),
                                                            cluster, gigabytes(memory) * 1e9);
    const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) {
      const auto lines = said({.name = "", .memory = memory, .expected = ""}, folder);
      return rank == 0 ? lines.at(0) : "";
    });
    EXPECT_THAT(words, ElementsAre("strategy auto: " + planned.reason, ""));
  }
}

// Without a number, it is the machine's memory, which has enough for this.
TEST(AutomaticStrategy, ReckonsWithTheMachinesMemory) {
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) {
    auto options = quiet(folder.string());
    options.enable_checkpointing = false;
    options.max_epochs = 1;
    levin::Trainer trainer(options);
    trainer.fit(std::make_shared<Deep>(), loader());
    return chosen_by(trainer.accelerator());
  });
  EXPECT_THAT(words, Each("ddp"));
}

}  // namespace
}  // namespace automatic
