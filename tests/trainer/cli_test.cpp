#include "levin/trainer/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <numeric>

#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"
#include "tests/trainer/tool.h"

namespace {

using namespace small_run;  // NOLINT
using levin::test::run_world;
using levin::test::Said;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

struct ToolModule : Net {
  struct Options {
    double bias = 0.0;
    void fields(levin::FieldVisitor& field) { field("bias", bias, "added to what is predicted"); }
  };
  Options chosen;
  explicit ToolModule(Options options) : chosen(options) {}
  void test_step(const levin::Batch& batch, int64_t index) override {
    validation_step(batch, index);
  }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return batch["x"] + chosen.bias;
  }
};

struct ToolData : levin::DataModule {
  std::optional<levin::DataLoader> loader() {
    return levin::DataLoader(dataset(20), {.batch_size = 8});
  }
  std::optional<levin::DataLoader> train_dataloader() override { return loader(); }
  std::optional<levin::DataLoader> val_dataloader() override { return loader(); }
  std::optional<levin::DataLoader> test_dataloader() override { return loader(); }
  std::optional<levin::DataLoader> predict_dataloader() override { return loader(); }
};

template <class TheModule = ToolModule, class TheData = ToolData>
Said tool(const std::string& root, std::vector<std::string> arguments,
          const levin::TrainerOptions& own = {}) {
  auto defaults = quiet(root);
  defaults.max_epochs = own.max_epochs.value_or(1);
  defaults.callbacks = own.callbacks;
  defaults.logger = true;
  return levin::test::run_tool<TheModule, TheData>(std::move(arguments), defaults);
}

TEST(Cli, LrFindPrintsTheSuggestionAndWritesTheCurve) {
  const Scratch root;
  const Said said = tool(root.str(), {"lr-find", "--max-epochs", "10", "--lr-find-num-training",
                                      "24", "--lr-find-max-lr", "2"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, testing::MatchesRegex("lr=[0-9.e-]+\n"));
  std::ifstream rows(root.path() / "lr_find.csv");
  std::string line, last;
  int64_t lines = 0;
  for (; std::getline(rows, line); ++lines) last = line;
  EXPECT_EQ(lines, 25);
  EXPECT_THAT(last, testing::StartsWith("2,"));
  EXPECT_TRUE(fs::exists(root.path() / "lr_find.svg"));
  EXPECT_FALSE(fs::exists(root.path() / "levin_logs"));

  const std::string file = (root.path() / "own.csv").string();
  const Said own =
      tool(root.str(), {"lr-find", "--max-epochs", "10", "--lr-find-mode", "linear",
                        "--lr-find-early-stop-threshold", "none", "--lr-find-num-training", "20",
                        "--lr-find-min-lr", "0", "--lr-find-output", file});
  EXPECT_EQ(own.code, 0) << own.err;
  EXPECT_TRUE(fs::exists(file));
  EXPECT_EQ(tool(root.str(), {"lr-find", "--lr-find-min-lr", "7"}).code, 1);
}

TEST(Cli, FitTestAndPredictPassTheWeightsOn) {
  const Scratch root;
  ASSERT_EQ(tool(root.str(), {"fit"}).code, 0);
  const Said tested = tool(root.str(), {"test"});
  EXPECT_EQ(tested.code, 0) << tested.err;
  EXPECT_THAT(tested.out, HasSubstr("val_acc="));
  EXPECT_THAT(tested.err, HasSubstr("checkpoints/epoch=0-step=3"));
  const std::string output = (root / "out.safetensors").string();
  const Said predicted = tool(root.str(), {"predict", "--bias", "2", "--output", output});
  EXPECT_EQ(predicted.code, 0) << predicted.err;
  std::vector<int64_t> all(20);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_TRUE(torch::equal(levin::load_weights(output).tensor("predictions"),
                           dataset(20)->get(all)["x"] + 2.0));
}

TEST(Cli, PredictionsReplacePredictionsAlone) {
  const Scratch root;
  ASSERT_EQ(tool(root.str(), {"fit"}).code, 0);
  const std::string output = (root / "out.safetensors").string();
  const std::vector<std::string> words = {"predict", "--output", output};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(tool(root.str(), words).code, 0);
  levin::State weights;
  weights.set("w", torch::ones({2}));
  levin::save_weights(output, weights);
  const Said said = tool(root.str(), words);
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.err, HasSubstr("files.replace: cannot write predictions to " + output));
  EXPECT_TRUE(levin::load_weights(output).contains("w"));
  fs::rename(output, root / "mine");
  fs::create_symlink(root / "mine", output);
  EXPECT_THAT(tool(root.str(), words).err, HasSubstr("files.replace: "));
  EXPECT_TRUE(fs::is_symlink(output));
}

/// What `tool` does in each of several ranks, in turn; nothing of it on their own consoles.
std::vector<std::string> in_world(
    int64_t ranks, const fs::path& root,
    const std::function<std::string(int64_t rank, const Said& said)>& check,
    std::vector<std::string> arguments) {
  return run_world(ranks, [&](int64_t rank, const fs::path&) {
    return check(rank, tool(root.string(), arguments));
  });
}

TEST(Cli, PredictionsOfAllRanksAreWrittenInTheOrderOfTheSamples) {
  std::vector<int64_t> all(20);
  std::iota(all.begin(), all.end(), 0);
  const auto wanted = dataset(20)->get(all)["x"];
  for (const int64_t ranks : {2, 3}) {
    for (const char* dispatch : {"false", "true"}) {
      const Scratch root;
      const std::string output = (root / "out.safetensors").string();
      const auto code = [](int64_t, const Said& said) { return said.code == 0 ? "" : said.err; };
      EXPECT_THAT(in_world(ranks, root.path(), code, {"fit"}), Each(""));
      EXPECT_THAT(in_world(ranks, root.path(), code,
                           {"predict", "--output", output, "--dispatch-batches", dispatch}),
                  Each(""));
      EXPECT_TRUE(torch::equal(levin::load_weights(output).tensor("predictions"), wanted))
          << ranks << " ranks, dispatched: " << dispatch;
    }
  }
}

TEST(Cli, RanksThatReadTheSameWriteItOnce) {
  const Scratch root;
  const std::string output = (root / "out.safetensors").string();
  const auto code = [](int64_t, const Said& said) { return said.code == 0 ? "" : said.err; };
  EXPECT_THAT(in_world(2, root.path(), code, {"fit"}), Each(""));
  EXPECT_THAT(in_world(2, root.path(), code,
                       {"predict", "--output", output, "--use-distributed-sampler", "false"}),
              Each(""));
  EXPECT_EQ(levin::load_weights(output).tensor("predictions").size(0), 20);
}

/// Gives the mean of a batch, which belongs to no sample.
struct MeanModule : ToolModule {
  using ToolModule::ToolModule;
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return batch["x"].mean(0, /*keepdim=*/true);
  }
};

TEST(Cli, PredictionsWithoutARowForEachSampleAreRefusedOnSeveralRanks) {
  const Scratch root;
  ASSERT_EQ(tool(root.str(), {"fit"}).code, 0);
  const auto words = run_world(2, [&](int64_t, const fs::path&) {
    const Said said = tool<MeanModule, ToolData>(
        root.str(), {"predict", "--output", (root / "out.safetensors").string()});
    return said.code == 1 ? said.err : "no error";
  });
  EXPECT_THAT(words, Contains(HasSubstr("trainer.predictions: predict_step returned 1 rows")));
  EXPECT_FALSE(fs::exists(root / "out.safetensors"));
}

/// Has the data twice.
struct TwiceData : ToolData {
  using ToolData::ToolData;
  std::vector<levin::DataLoader> predict_dataloaders() override {
    return {*predict_dataloader(), *predict_dataloader()};
  }
};

TEST(Cli, SeveralPredictionLoadersFollowEachOtherAndAreRefusedOnSeveralRanks) {
  const Scratch root;
  const std::string output = (root / "out.safetensors").string();
  ASSERT_EQ(tool(root.str(), {"fit"}).code, 0);
  const auto predict = [&] {
    return tool<ToolModule, TwiceData>(root.str(), {"predict", "--output", output});
  };
  ASSERT_EQ(predict().code, 0);
  const levin::State written = levin::load_weights(output);
  const at::Tensor& rows = written.tensor("predictions");
  const auto halves = rows.chunk(2);
  EXPECT_EQ(rows.size(0), 40);
  EXPECT_TRUE(torch::equal(halves[0], halves[1]));
  const auto words = run_world(2, [&](int64_t, const fs::path&) {
    const Said said = predict();
    return said.code == 1 ? said.err : "no error";
  });
  EXPECT_THAT(words,
              Contains(HasSubstr("trainer.predictions: got several prediction loaders with 2 ")));
}

TEST(Cli, TheMainProcessAlonePrintsMetrics) {
  const Scratch root;
  for (const char* command : {"fit", "validate", "test"}) {
    const auto words = in_world(
        2, root.path(),
        [&](int64_t, const Said& said) { return said.code == 0 ? said.out : said.err; }, {command});
    const bool prints = command != std::string("fit");
    EXPECT_THAT(words[0], prints ? HasSubstr("val_acc=") : HasSubstr(""));
    EXPECT_EQ(words[1], "") << command;
  }
}

/// Its weights are the number of the epoch, whose scores are 1, 3, 2.
struct ByEpoch : ToolModule {
  using ToolModule::ToolModule;
  void on_train_epoch_end() override {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(static_cast<double>(current_epoch()));
  }
  void validation_step(const levin::Batch&, int64_t) override {
    const double scores[] = {1.0, 3.0, 2.0};
    log("score", scores[current_epoch()]);
  }
  void test_step(const levin::Batch&, int64_t) override {
    log("weight", parameters().front().mean());
  }
};

TEST(Cli, TestFindsTheBestCheckpointOfAnEarlierProgram) {
  const Scratch root;
  const auto run = [&](std::vector<std::string> arguments) {
    levin::TrainerOptions defaults;
    defaults.callbacks = {levin::model_checkpoint({.monitor = "score", .mode = "max"})};
    defaults.max_epochs = 3;
    return tool<ByEpoch, ToolData>(root.str(), std::move(arguments), defaults);
  };
  const Said untrained = run({"test", "--ckpt-path", "best"});
  EXPECT_EQ(untrained.code, 1);
  EXPECT_THAT(untrained.err, HasSubstr("trainer.ckpt_path: got 'best', but the newest run"));
  ASSERT_EQ(run({"fit"}).code, 0);
  const Said best = run({"test", "--ckpt-path", "best"});
  EXPECT_EQ(best.code, 0) << best.err;
  EXPECT_THAT(best.out, HasSubstr("weight=1\n"));
  EXPECT_THAT(run({"test", "--ckpt-path", "last"}).out, HasSubstr("weight=2\n"));
  // Wherever the folder is by now.
  fs::rename(root / "levin_logs/version_0", root / "levin_logs/moved");
  EXPECT_THAT(run({"test", "--ckpt-path", "best"}).out, HasSubstr("weight=1\n"));
  EXPECT_THAT(
      run({"predict", "--ckpt-path", "best", "--output", (root / "out.safetensors").string()}).err,
      HasSubstr("epoch=1-step=6"));
  // A run that ranked by something else has no best of this.
  levin::TrainerOptions other;
  other.callbacks = {levin::model_checkpoint({.monitor = "weight"})};
  const Said unknown = tool<ByEpoch, ToolData>(root.str(), {"test", "--ckpt-path", "best"}, other);
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("trainer.ckpt_path: got 'best'"));
}

TEST(Cli, TheSeedHoldsForTheModulesWeights) {
  std::vector<levin::State> weights;
  for (const int64_t noise : {1, 2}) {
    const Scratch root;
    torch::manual_seed(noise);
    ASSERT_EQ(tool(root.str(), {"fit", "--seed", "5"}).code, 0);
    weights.push_back(levin::load_weights(root / "levin_logs/version_0/checkpoints/last"));
  }
  for (const auto& [name, value] : weights[0].values()) {
    EXPECT_TRUE(torch::equal(weights[0].tensor(name), weights[1].tensor(name))) << name;
  }
}

TEST(Cli, HelpListsTheOptionsOfAllThree) {
  const Scratch root;
  const Said all = tool(root.str(), {"--help"});
  EXPECT_EQ(all.code, 0);
  for (const char* word : {"fit", "validate", "test", "predict"}) {
    EXPECT_THAT(all.out, HasSubstr(word));
  }
  const Said fit = tool(root.str(), {"fit", "--help"});
  EXPECT_EQ(fit.code, 0);
  EXPECT_THAT(fit.out, HasSubstr("--bias"));
  EXPECT_THAT(fit.out, HasSubstr("--max-epochs"));
  EXPECT_THAT(tool(root.str(), {"predict", "--help"}).out, HasSubstr("--output"));
}

/// With a part that the checkpoint of ToolModule lacks.
struct WiderModule : ToolModule {
  explicit WiderModule(Options options) : ToolModule(options) {
    register_module("more", torch::nn::Linear(3, 3));
  }
};

TEST(Cli, WhatACheckpointLacksNamesTheCheckpoint) {
  const Scratch root;
  ASSERT_EQ(tool(root.str(), {"fit"}).code, 0);
  const Said tested = tool<WiderModule, ToolData>(root.str(), {"test"});
  EXPECT_EQ(tested.code, 1);
  EXPECT_THAT(tested.err,
              ::testing::ContainsRegex("module.state.missing: .*more.weight.* \\[weights of "
                                       "'.*checkpoints/epoch=0-step=3'\\]"));
  const Said resumed = tool<WiderModule, ToolData>(root.str(), {"fit", "--ckpt-path", "last"});
  EXPECT_EQ(resumed.code, 1);
  EXPECT_THAT(resumed.err,
              ::testing::ContainsRegex("module.state.missing: .*more.weight.* \\[resuming "
                                       "from '.*checkpoints/epoch=0-step=3'\\]"));
}

struct FailingModule : ToolModule {
  using ToolModule::ToolModule;
  void test_step(const levin::Batch&, int64_t index) override {
    if (index == 2) throw std::runtime_error("too wide");
  }
};

TEST(Cli, AnErrorSaysWhereItCame) {
  const Scratch root;
  ASSERT_EQ(tool(root.str(), {"fit"}).code, 0);
  const Said tested = tool<FailingModule, ToolData>(root.str(), {"test"});
  EXPECT_EQ(tested.code, 1);
  EXPECT_THAT(tested.err, HasSubstr("too wide [test batch 2]\n"));
}

TEST(Cli, MistakesHaveTheirOwnExitCodes) {
  const Scratch root;
  const Said unknown = tool(root.str(), {"fti"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("trainer.cli: got 'fti'"));
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'fit'?"));
  EXPECT_EQ(tool(root.str(), {"fit", "--biass", "1"}).code, 2);
  EXPECT_EQ(tool(root.str(), {}).code, 2);
  const Said untrained = tool(root.str(), {"test"});
  EXPECT_EQ(untrained.code, 1);
  EXPECT_THAT(untrained.err, HasSubstr("trainer.ckpt_path"));
}

}  // namespace
