#include "levin/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/files/atomic.h"
#include "levin/module/parameters.h"
#include "tests/checkpoint/on_disk.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"

namespace {

namespace fs = std::filesystem;
using levin::Checkpoint;
using levin::load_checkpoint;
using levin::load_weights;
using levin::save_checkpoint;
using levin::State;
using levin::test::difference;
using levin::test::error_id;
using levin::test::error_of;
using levin::test::get;
using levin::test::names_in;
using levin::test::put;
using levin::test::sample;
using levin::test::Scratch;
using ::testing::ElementsAre;
using ::testing::StartsWith;

/// Its one weight is used, and registered, twice.
struct TiedNetImpl : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 3));
  at::Tensor head = register_parameter("head", first->weight);

  at::Tensor forward(const at::Tensor& x) { return torch::matmul(first->forward(x), head.t()); }
};

TEST(Checkpoint, ComesBackAsItWasSaved) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", sample(3));
  EXPECT_EQ(difference(sample(3), load_checkpoint(scratch / "c")), "");
}

TEST(Checkpoint, ComesBackEmptyWhenItWasEmpty) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", {.weights = {{"model", State()}}});
  EXPECT_EQ(difference(Checkpoint{.weights = {{"model", State()}}}, load_checkpoint(scratch / "c")),
            "");
}

TEST(Checkpoint, IsAFolderOfTheFilesThatTheHeaderNames) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", sample(3));
  EXPECT_THAT(names_in(scratch / "c"),
              ElementsAre("manifest.json", "model.safetensors", "model_1.safetensors",
                          "training_state.json", "training_state.safetensors"));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("c"));
}

TEST(Checkpoint, HasTheSameBytesForTheSameState) {
  const Scratch scratch;
  save_checkpoint(scratch / "a", sample(3));
  save_checkpoint(scratch / "b", sample(3));
  for (const std::string& name : names_in(scratch / "a")) {
    EXPECT_EQ(get(scratch / "a" / name), get(scratch / "b" / name)) << name;
  }
}

TEST(Checkpoint, MakesTheFoldersAboveIt) {
  const Scratch scratch;
  save_checkpoint(scratch / "runs/7/c", sample(3));
  EXPECT_EQ(difference(sample(3), load_checkpoint(scratch / "runs/7/c")), "");
}

TEST(Checkpoint, TakesAPathWithASlashAtItsEnd) {
  const Scratch scratch;
  save_checkpoint(scratch / "c/", sample(3));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("c"));
  EXPECT_EQ(difference(sample(3), load_checkpoint(scratch / "c/")), "");
}

TEST(Checkpoint, CanBeMoved) {
  const Scratch scratch;
  save_checkpoint(scratch / "a", sample(3));
  fs::rename(scratch / "a", scratch / "b");
  EXPECT_EQ(difference(sample(3), load_checkpoint(scratch / "b")), "");
}

TEST(Checkpoint, LoadsThroughTheLinkToTheLast) {
  const Scratch scratch;
  for (const int64_t step : {1, 2}) {
    const fs::path folder = scratch / ("step=" + std::to_string(step));
    save_checkpoint(folder, sample(step));
    levin::files::replace_link(scratch / "last", folder);
  }
  EXPECT_EQ(difference(sample(2), load_checkpoint(scratch / "last")), "");
}

TEST(Checkpoint, SavedUnderATakenNameReplacesAllThatWasThere) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", sample(1));
  Checkpoint smaller = sample(2);
  smaller.weights.erase("model_1");
  save_checkpoint(scratch / "c", smaller);
  EXPECT_EQ(difference(smaller, load_checkpoint(scratch / "c")), "");
  EXPECT_FALSE(fs::exists(scratch / "c/model_1.safetensors"));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("c"));
}

TEST(Checkpoint, CanBeSavedOverTheOneItWasLoadedFrom) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", sample(1));
  save_checkpoint(scratch / "c", load_checkpoint(scratch / "c"));
  EXPECT_EQ(difference(sample(1), load_checkpoint(scratch / "c")), "");
}

TEST(Checkpoint, OutlivesItsFolderOnceItIsLoaded) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", sample(1));
  const Checkpoint loaded = load_checkpoint(scratch / "c");
  fs::remove_all(scratch / "c");
  EXPECT_EQ(difference(sample(1), loaded), "");
}

TEST(Checkpoint, ItsLoadedTensorsCanBeWrittenTo) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", sample(1));
  EXPECT_EQ(0, levin::test::run_child([&] {
              at::set_num_threads(1);
              const Checkpoint loaded = load_checkpoint(scratch / "c");
              loaded.weights.at("model").tensor("net.weight").add_(1.0);
              return difference(sample(1), load_checkpoint(scratch / "c")).empty() ? 0 : 1;
            }));
}

TEST(Checkpoint, DoesNotReplaceAFile) {
  const Scratch scratch;
  put(scratch / "c", "mine");
  EXPECT_THAT(error_of([&] { save_checkpoint(scratch / "c", sample(1)); }),
              StartsWith("files.write: cannot replace "));
  EXPECT_EQ(get(scratch / "c"), "mine");
}

TEST(Checkpoint, WeightsOfANameThatNoFileCanHaveAreAnErrorThatSavesNothing) {
  const Scratch scratch;
  for (const char* name : {"", "a/b", "../model", "training_state"}) {
    EXPECT_THAT(
        error_of([&] { save_checkpoint(scratch / "c", {.weights = {{name, State()}}}); }),
        StartsWith("checkpoint.path: got weights named '" + std::string(name) + "', wanted"));
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(Checkpoint, WeightsKeepNamesWithDots) {
  const Scratch scratch;
  Checkpoint checkpoint;
  checkpoint.weights["net.v1.5"].set("w", torch::ones({2}));
  save_checkpoint(scratch / "c", checkpoint);
  EXPECT_EQ(difference(checkpoint, load_checkpoint(scratch / "c")), "");
}

TEST(Checkpoint, WeightsThatAreNoTensorsAreAnErrorThatSavesNothing) {
  const Scratch scratch;
  State weights;
  weights.set("lr", 0.1);
  EXPECT_THAT(error_of([&] { save_checkpoint(scratch / "c", {.weights = {{"model", weights}}}); }),
              StartsWith("base.state.type: 'lr' is a number, wanted a tensor"));
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(Checkpoint, AMissingFolderIsAnErrorThatNamesIt) {
  const Scratch scratch;
  EXPECT_THAT(error_of([&] { load_checkpoint(scratch / "none"); }),
              StartsWith("checkpoint.missing: the checkpoint folder '" + scratch.str() + "/none'"));
  EXPECT_THAT(error_of([&] { load_checkpoint(put(scratch / "file", "")); }),
              StartsWith("checkpoint.missing"));
}

TEST(Checkpoint, AFolderThatIsNoCheckpointIsAnErrorThatNamesWhatItLacks) {
  const Scratch scratch;
  EXPECT_THAT(error_of([&] { load_checkpoint(scratch.path()); }),
              StartsWith("checkpoint.missing: '" + scratch.str() + "' holds no manifest.json"));
}

TEST(Checkpoint, AModulesWeightsMakeAnotherModuleGiveTheSameOutput) {
  const Scratch scratch;
  const auto net = std::make_shared<TiedNetImpl>();
  save_checkpoint(scratch / "c", {.weights = {{"model", levin::module_state(*net)}}});
  const auto other = std::make_shared<TiedNetImpl>();
  levin::load_module_state(*other, load_checkpoint(scratch / "c").weights.at("model"));
  const at::Tensor x = torch::ones({2, 3});
  EXPECT_TRUE(torch::equal(net->forward(x), other->forward(x)));
}

TEST(Checkpoint, TiedParametersStayTiedThroughIt) {
  const Scratch scratch;
  const auto net = std::make_shared<TiedNetImpl>();
  save_checkpoint(scratch / "c", {.weights = {{"model", levin::module_state(*net)}}});
  const auto other = std::make_shared<TiedNetImpl>();
  levin::load_module_state(*other, load_checkpoint(scratch / "c").weights.at("model"));
  EXPECT_TRUE(other->head.is_same(other->first->weight));
  EXPECT_TRUE(torch::equal(other->head, net->head));
}

TEST(LoadWeights, TakesTheFolderOfACheckpointOfOneModel) {
  const Scratch scratch;
  Checkpoint one = sample(4);
  one.weights.erase("model_1");
  save_checkpoint(scratch / "c", one);
  EXPECT_EQ(difference(one.weights.at("model"), load_weights(scratch / "c")), "");
}

TEST(LoadWeights, TakesAnySafetensorsFile) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", sample(4));
  EXPECT_EQ(
      difference(sample(4).weights.at("model_1"), load_weights(scratch / "c/model_1.safetensors")),
      "");
}

TEST(LoadWeights, OfACheckpointOfSeveralModelsIsAnErrorThatSaysWhatToGive) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", sample(4));
  EXPECT_THAT(error_of([&] { load_weights(scratch / "c"); }),
              StartsWith("checkpoint.weights: '" + scratch.str() +
                         "/c' holds the weights of 2 models; give the path of one"));
}

TEST(LoadWeights, OfWhatIsNotThereOrNoSafetensorsIsAnError) {
  const Scratch scratch;
  EXPECT_EQ(error_id([&] { load_weights(scratch / "none.safetensors"); }), "checkpoint.missing");
  EXPECT_EQ(error_id([&] { load_weights(put(scratch / "text", "no weights")); }),
            "files.safetensors");
}

TEST(SaveWeights, OverTheFileTheyWereLoadedFromKeepsThem) {
  const Scratch scratch;
  State weights;
  weights.set("w", torch::arange(10'000, torch::kFloat));
  levin::save_weights(scratch / "w.safetensors", weights);
  levin::save_weights(scratch / "w.safetensors", load_weights(scratch / "w.safetensors"));
  EXPECT_EQ(difference(weights, load_weights(scratch / "w.safetensors")), "");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("w.safetensors"));
}

TEST(SaveWeights, WhereAFolderStandsIsAnErrorThatLeavesIt) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", sample(4));
  EXPECT_THAT(error_of([&] { levin::save_weights(scratch / "c", State()); }),
              StartsWith("files.write: cannot rename "));
  EXPECT_EQ(difference(sample(4), load_checkpoint(scratch / "c")), "");
}

}  // namespace
