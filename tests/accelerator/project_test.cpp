// Checkpoints with a number, trackers, weights in several files, batches that are passed over.

#include "levin/accelerator/project/project.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/accelerator/accelerator.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"
#include "tests/support/same_weights.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

using levin::Accelerator;
using levin::optim::sgd;
using levin::test::error_of;
using levin::test::get;
using levin::test::names_in;
using levin::test::run_world;
using levin::test::Scratch;
using small_nets::dataset;
using small_nets::loss_of;
using small_nets::sequential;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

levin::AcceleratorOptions numbered(const Scratch& scratch, int64_t limit) {
  return {.cpu = true,
          .project_dir = scratch.str(),
          .project_config = {.automatic_checkpoint_naming = true, .total_limit = limit}};
}

TEST(Project, ALimitOfCheckpointsThatAreNotNumberedIsAnError) {
  EXPECT_THAT(
      error_of([] { Accelerator({.cpu = true, .project_config = {.total_limit = 2}}); }),
      StartsWith(
          "accelerator.project: got total_limit = 2, which applies only to automatic_checkpoint"));
}

TEST(Project, NumbersItsCheckpointsAndKeepsTheNewest) {
  const Scratch scratch;
  Accelerator accelerator(numbered(scratch, 2));
  auto net = sequential();
  auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.1}));
  for (int i = 0; i < 4; ++i) {
    accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
    optimizer.step();
    EXPECT_EQ(accelerator.save_state(), scratch / ("checkpoints/checkpoint_" + std::to_string(i)));
  }
  EXPECT_THAT(names_in(scratch / "checkpoints"), ElementsAre("checkpoint_2", "checkpoint_3"));

  Accelerator again(numbered(scratch, 2));
  auto other = sequential();
  again.prepare(other, sgd({.lr = 0.1}));
  again.load_state();
  levin::test::expect_same_weights(*net, *other);
  EXPECT_EQ(again.save_state(), scratch / "checkpoints/checkpoint_4");
}

TEST(Project, RemovesCheckpointsAloneWhateverElseHasTheirName) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "checkpoints/checkpoint_0");
  levin::test::put(scratch / "checkpoints/checkpoint_0/thesis.txt", "mine");
  for (const char* name : {"checkpoint_-3", "checkpoint_007"}) {
    levin::save_checkpoint(scratch / "checkpoints" / name, {});
  }
  Accelerator accelerator(numbered(scratch, 2));
  accelerator.prepare(sequential());
  for (int i = 0; i < 4; ++i) accelerator.save_state();
  EXPECT_THAT(names_in(scratch / "checkpoints"),
              ElementsAre("checkpoint_-3", "checkpoint_0", "checkpoint_007", "checkpoint_3",
                          "checkpoint_4"));
  EXPECT_EQ(get(scratch / "checkpoints/checkpoint_0/thesis.txt"), "mine");
}

TEST(SaveState, ReplacesNoFolderOfTheUsers) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "results");
  levin::test::put(scratch / "results/thesis.txt", "mine");
  Accelerator accelerator({.cpu = true});
  accelerator.prepare(sequential());
  EXPECT_THAT(error_of([&] { accelerator.save_state(scratch / "results"); }),
              StartsWith("files.replace: "));
  EXPECT_EQ(get(scratch / "results/thesis.txt"), "mine");
  accelerator.save_state(scratch / "state");
  accelerator.save_state(scratch / "state");  // a checkpoint is
}

TEST(Project, GoesByNumberAndNotByName) {
  const Scratch scratch;
  for (const char* name : {"checkpoint_9", "checkpoint_10", "checkpoint_x", "other"}) {
    std::filesystem::create_directories(scratch / "checkpoints" / name);
  }
  const levin::Project project(scratch.path(), {.automatic_checkpoint_naming = true});
  EXPECT_EQ(project.newest_checkpoint().filename(), "checkpoint_10");
  EXPECT_EQ(project.next_checkpoint().filename(), "checkpoint_11");
}

TEST(Project, WithoutAFolderIsAnError) {
  Accelerator accelerator({.cpu = true});
  EXPECT_THAT(error_of([&] { accelerator.save_state(); }),
              StartsWith("accelerator.project: got no folder for the state; give one, or set"));
  const Scratch scratch;
  Accelerator empty(numbered(scratch, 0));
  EXPECT_THAT(error_of([&] { empty.load_state(); }),
              StartsWith("accelerator.project: found no checkpoint under"));
}

TEST(Project, HooksSeeWhatIsSavedAndLoaded) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true});
  accelerator.prepare(sequential());
  int64_t seen = 0;
  accelerator.register_save_state_pre_hook(
      [](levin::Checkpoint& checkpoint) { checkpoint.training.set("mine", int64_t{7}); });
  accelerator.register_load_state_pre_hook(
      [&](const levin::Checkpoint& checkpoint) { seen = checkpoint.training.integer("mine"); });
  accelerator.save_state(scratch / "state");
  accelerator.load_state(scratch / "state");
  EXPECT_EQ(seen, 7);
}

TEST(SaveModel, WritesOneFileOrSeveralWithAnIndex) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true});
  auto net = sequential();
  auto [model] = accelerator.prepare(net);
  accelerator.save_model(model, scratch / "model", 300);
  EXPECT_THAT(names_in(scratch / "model"),
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  EXPECT_THAT(get(scratch / "model/model.safetensors.index.json"),
              HasSubstr("\"2.weight\": \"model-00003-of-00003.safetensors\""));
  auto other = sequential();
  for (at::Tensor& parameter : other->parameters()) parameter.data().zero_();
  levin::load_module_state(*other, levin::load_sharded_weights(scratch / "model"));
  levin::test::expect_same_weights(*net, *other);

  accelerator.save_model(model, scratch / "model");
  EXPECT_THAT(names_in(scratch / "model"), ElementsAre("model.safetensors"));
  levin::load_module_state(*other, levin::load_sharded_weights(scratch / "model"));
  levin::test::expect_same_weights(*net, *other);
  EXPECT_THAT(error_of([&] { accelerator.save_model(model, scratch / "model", 0); }),
              StartsWith("checkpoint.shard: got max_shard_bytes = 0"));
}

TEST(Save, TheNameOfTheFileSaysWhichFormatItHas) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true});
  levin::State state;
  state.set("w", torch::arange(6).view({2, 3}));
  for (const char* name : {"w.pt", "w.pth", "w.bin", "w.safetensors"}) {
    accelerator.save(state, scratch / name);
    EXPECT_EQ(levin::is_torch_checkpoint(scratch / name), name != std::string("w.safetensors"));
    EXPECT_TRUE(torch::equal(levin::load_weights(scratch / name).tensor("w"), state.tensor("w")));
  }
}

struct TiedNetImpl : torch::nn::Module {
  TiedNetImpl() {
    words = register_module("words", torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(false)));
    register_module("z_head", std::make_shared<torch::nn::Module>())
        ->register_parameter("weight", words->weight);
  }
  at::Tensor forward(const at::Tensor& x) { return words->forward(x).matmul(words->weight); }
  torch::nn::Linear words{nullptr};
};
TORCH_MODULE(TiedNet);

TEST(Save, OfAModelHasEachNameOfTiedWeightsWhereItIsForPython) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true});
  TiedNet net;
  auto [model] = accelerator.prepare(net);
  accelerator.save(model, scratch / "net.pt");
  const levin::State both = levin::load_weights(scratch / "net.pt");
  EXPECT_EQ(both.values().size(), 2U);
  EXPECT_TRUE(both.tensor("z_head.weight").is_alias_of(both.tensor("words.weight")));
  EXPECT_TRUE(torch::equal(both.tensor("z_head.weight"), net->words->weight));
  accelerator.save(model, scratch / "net.safetensors");
  EXPECT_EQ(levin::load_weights(scratch / "net.safetensors").values().size(), 1U);
  const levin::State training = accelerator.state_dict().training;
  EXPECT_EQ(training.child("tied").child("0").text("z_head.weight"), "words.weight");
}

TEST(Save, OfADividedModelHasItsWholes) {
  const Scratch scratch;
  const auto said = levin::test::run_world(2, [&](int64_t rank, const auto&) -> std::string {
    torch::manual_seed(1);
    Accelerator accelerator({.cpu = true, .strategy = "fsdp"});
    TiedNet net;
    const at::Tensor wanted = net->words->weight.detach().clone();
    auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({.lr = 0.1}));
    accelerator.save(model, scratch / "net.pt");
    if (rank != 0) return "";
    const levin::State saved = levin::load_weights(scratch / "net.pt");
    for (const char* name : {"words.weight", "z_head.weight"}) {
      if (!torch::equal(saved.tensor(name), wanted)) return name;
    }
    return "";
  });
  EXPECT_THAT(said, ::testing::Each(""));
}

TEST(SaveModel, RemovesNoOtherModels) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true});
  auto [model] = accelerator.prepare(sequential());
  std::filesystem::create_directories(scratch / "model");
  levin::test::put(scratch / "model/model-best.safetensors", "mine");
  accelerator.save_model(model, scratch / "model");
  accelerator.save_model(model, scratch / "model", 300);
  EXPECT_EQ(get(scratch / "model/model-best.safetensors"), "mine");
}

TEST(SaveModel, AnIndexOfSomethingElseIsAnError) {
  const Scratch scratch;
  const auto index = [&](const char* text) {
    levin::test::put(scratch / "model.safetensors.index.json", text);
    return error_of([&] { levin::load_sharded_weights(scratch.path()); });
  };
  EXPECT_THAT(index("[]"), HasSubstr("is not an index of weights"));
  EXPECT_THAT(index("{"), StartsWith("checkpoint.corrupt: "));
  EXPECT_THAT(index(R"({"weight_map": {"a": "../b.safetensors"}})"),
              HasSubstr("names no file of its folder for a"));
  levin::State weights;
  weights.set("b", torch::ones({2}));
  levin::save_weights(scratch / "model-00001-of-00001.safetensors", weights);
  EXPECT_THAT(index(R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})"),
              HasSubstr("but that file does not contain it"));
}

TEST(SkipFirstBatches, GoesOnInTheMiddleOfTheEpochOnce) {
  Accelerator accelerator({.cpu = true});
  const auto data = levin::data::tensors({{"n", torch::arange(10)}});
  auto [loader] = accelerator.prepare(levin::DataLoader(data, {.batch_size = 2}));
  std::vector<int64_t> firsts;
  auto rest = accelerator.skip_first_batches(loader, 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& batch : rest) firsts.push_back(batch["n"][0].item<int64_t>());
  }
  EXPECT_THAT(firsts, ElementsAre(6, 8, 0, 2, 4, 6, 8));
  EXPECT_THAT(error_of([&] { accelerator.skip_first_batches(loader, 6); }),
              StartsWith("accelerator.skip: got 6 batches to skip, but the epoch has 5"));
  EXPECT_THAT(error_of([&] { accelerator.skip_first_batches(loader, -1); }),
              StartsWith("accelerator.skip: got -1"));
}

/// First numbers of the batches of `epochs` loops.
std::vector<int64_t> firsts_of(levin::PreparedLoader loader, int epochs) {
  std::vector<int64_t> firsts;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (const auto& batch : loader) firsts.push_back(batch["n"][0].item<int64_t>());
  }
  return firsts;
}

/// 5 batches of 2, by index or as a stream.
levin::DataLoader ten_numbers(bool is_stream) {
  const levin::Batch numbers{{"n", torch::arange(10)}};
  if (!is_stream) return {levin::data::tensors(numbers), {.batch_size = 2}};
  return {levin::IterableDatasetPtr(
              std::make_shared<levin::test::InShards>(numbers, std::vector<int64_t>{10})),
          {.batch_size = 2}};
}

TEST(SkipFirstBatches, CountsFromTheEpochsStartWhereverTheLoaderStands) {
  for (const bool is_stream : {false, true}) {
    const Scratch scratch;
    const auto resumed = [&](int64_t done, int64_t skipped) {
      {
        Accelerator accelerator({.cpu = true});
        auto [loader] = accelerator.prepare(ten_numbers(is_stream));
        levin::Batch batch;
        for (int64_t i = 0; i < done; ++i) loader.loader().next(batch);
        accelerator.save_state(scratch / "state");
      }
      Accelerator accelerator({.cpu = true});
      auto [loader] = accelerator.prepare(ten_numbers(is_stream));
      accelerator.load_state(scratch / "state");
      return firsts_of(accelerator.skip_first_batches(loader, skipped), 2);
    };
    EXPECT_THAT(resumed(3, 3), ElementsAre(6, 8, 0, 2, 4, 6, 8)) << is_stream;
    EXPECT_THAT(resumed(3, 4), ElementsAre(8, 0, 2, 4, 6, 8)) << is_stream;
    EXPECT_THAT(resumed(3, 1), ElementsAre(2, 4, 6, 8, 0, 2, 4, 6, 8)) << is_stream;
    EXPECT_THAT(resumed(0, 2), ElementsAre(4, 6, 8, 0, 2, 4, 6, 8)) << is_stream;
    EXPECT_THAT(resumed(5, 5), ElementsAre(0, 2, 4, 6, 8)) << is_stream;
    // All was read, so that none to skip means the epoch that comes.
    EXPECT_THAT(resumed(5, 0), ElementsAre(0, 2, 4, 6, 8, 0, 2, 4, 6, 8)) << is_stream;
  }
}

TEST(SkipFirstBatches, TakesAllOfAnEpochWhoseLastBatchIsShort) {
  Accelerator accelerator({.cpu = true});
  auto [loader] = accelerator.prepare(
      levin::DataLoader(levin::data::tensors({{"n", torch::arange(9)}}), {.batch_size = 2}));
  EXPECT_THAT(firsts_of(accelerator.skip_first_batches(loader, 5), 2), ElementsAre(0, 2, 4, 6, 8));
}

TEST(Trackers, WriteWhereTheProjectIs) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true, .log_with = {"all"}, .project_dir = scratch.str()});
  accelerator.init_trackers("mine", {{"lr", "0.1"}});
  accelerator.log({{"loss", 0.5}}, 1);
  accelerator.log({{"loss", 0.25}}, 2);
  EXPECT_THAT(accelerator.get_tracker("csv")->log_dir(), HasSubstr("mine/version_0"));
  EXPECT_THAT(error_of([&] { accelerator.get_tracker("wandb"); }),
              StartsWith("accelerator.tracker: got the tracker 'wandb', wanted one of [csv"));
  accelerator.end_training();
  EXPECT_THAT(get(scratch / "mine/version_0/metrics.csv"), HasSubstr("0.25"));
  EXPECT_EQ(names_in(scratch / "mine/version_0").size(), 5u);  // run_id is one
  EXPECT_THAT(
      error_of([] { Accelerator({.cpu = true, .log_with = {"wandb"}}); }),
      StartsWith("accelerator.log_with: got 'wandb', wanted csv, jsonl, mlflow, tensorboard"));
}

TEST(Trackers, LoggedToBeforeTheyAreThereSaySo) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true, .log_with = {"csv"}, .project_dir = scratch.str()});
  ::testing::internal::CaptureStderr();
  accelerator.log({{"loss", 0.5}}, 1);
  accelerator.log({{"loss", 0.5}}, 2);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("accelerator.log_with: log() was called, but no tracker is open"));
  EXPECT_EQ(said.find("accelerator.log_with"), said.rfind("accelerator.log_with"));
}

TEST(Trackers, AreTheMainProcessAlone) {
  const auto words = run_world(2, [](int64_t rank, const auto& folder) {
    Accelerator accelerator(
        {.cpu = true, .log_with = {"csv"}, .project_dir = (folder / "logs").string()});
    accelerator.init_trackers("run");
    accelerator.log({{"loss", 1.0}}, 1);
    const bool has_one = accelerator.get_tracker("csv") != nullptr;
    accelerator.end_training();
    return has_one == (rank == 0) ? std::string() : std::string("wrong");
  });
  EXPECT_THAT(words, Each(""));
}

TEST(LocalSgd, AveragesEverySoManySteps) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    Accelerator accelerator({.cpu = true, .strategy = "ddp"});
    auto net = sequential();
    auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.1}));
    levin::LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 2});
    std::string agreed;
    const auto agree = [&] {
      const at::Tensor all = accelerator.gather(net->parameters()[0].detach().flatten());
      const auto halves = all.chunk(2);
      return torch::equal(halves[0], halves[1]) ? "=" : "/";
    };
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      accelerator.backward(loss_of(model, small_nets::whole(dataset(8))) * (rank == 0 ? 1.0 : 2.0));
      optimizer.step();
      local_sgd.step();
      agreed += agree();
    }
    local_sgd.end();
    return agreed + agree();
  });
  EXPECT_THAT(words, Each("/=/=/="));
  Accelerator alone({.cpu = true});
  auto [model] = alone.prepare(sequential());
  EXPECT_THAT(error_of([&] { levin::LocalSGD(alone, model, {.local_sgd_steps = 0}); }),
              StartsWith("accelerator.local_sgd: got local_sgd_steps = 0"));
}

}  // namespace
