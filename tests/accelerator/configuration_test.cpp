// What a run of the Accelerator can be told: how batches are grouped, whose random numbers are
// drawn, where files go, what is recorded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/same_weights.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

using levin::Accelerator;
using levin::AcceleratorOptions;
using levin::optim::sgd;
using levin::test::error_of;
using levin::test::names_in;
using levin::test::run_world;
using levin::test::Scratch;
using small_nets::dataset;
using small_nets::loss_of;
using small_nets::sequential;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::StartsWith;

/// Two epochs of 20 samples in batches of 4; returns the number of steps.
int64_t train_epochs(const torch::nn::Sequential& net, const AcceleratorOptions& options) {
  Accelerator accelerator(options);
  auto [model, optimizer, loader] =
      accelerator.prepare(net, sgd({.lr = 0.1}), levin::DataLoader(dataset(20), {.batch_size = 4}));
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& batch : loader) {
      const auto scope = accelerator.accumulate(model);
      accelerator.backward(loss_of(model, batch));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return optimizer.steps();
}

TEST(GradientAccumulationPlugin, NamesTheNumberOfBatches) {
  const auto by_option = sequential(), by_plugin = sequential();
  EXPECT_EQ(train_epochs(by_option, {.gradient_accumulation_steps = 2, .cpu = true}), 6);
  EXPECT_EQ(
      train_epochs(by_plugin, {.cpu = true, .gradient_accumulation_plugin = {.num_steps = 2}}), 6);
  levin::test::expect_same_weights(*by_option, *by_plugin);
}

TEST(GradientAccumulationPlugin, AndTheOptionMustNotNameTwo) {
  EXPECT_THAT(error_of([] {
                Accelerator({.gradient_accumulation_steps = 3,
                             .cpu = true,
                             .gradient_accumulation_plugin = {.num_steps = 2}});
              }),
              StartsWith("accelerator.accumulate: got gradient_accumulation_steps = 3 and "
                         "gradient_accumulation_plugin.num_steps = 2"));
}

TEST(GradientAccumulationPlugin, AGroupMayGoOnInTheNextEpoch) {
  const auto net = sequential();
  EXPECT_EQ(train_epochs(net, {.cpu = true,
                               .gradient_accumulation_plugin = {.num_steps = 2,
                                                                .sync_with_dataloader = false}}),
            5);
}

TEST(GradientAccumulationPlugin, SyncedAfterEachBatchIsTheSameStep) {
  const auto words = run_world(2, [](int64_t, const auto&) {
    const auto at_the_end = sequential(), each_batch = sequential();
    AcceleratorOptions options{.gradient_accumulation_steps = 2, .cpu = true, .strategy = "ddp"};
    train_epochs(at_the_end, options);
    options.gradient_accumulation_plugin.sync_each_batch = true;
    train_epochs(each_batch, options);
    const auto mine = at_the_end->parameters(), theirs = each_batch->parameters();
    for (size_t i = 0; i < mine.size(); ++i) {
      if (!torch::allclose(mine[i], theirs[i], 1e-5, 1e-6)) return std::string("differs");
    }
    return std::string();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(TriggerSync, MakesGradientsAgreeWithinNoSync) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    Accelerator accelerator({.cpu = true, .strategy = "ddp"});
    auto net = sequential();
    auto [model] = accelerator.prepare(net);
    const auto gradient = [&] { return net->parameters()[0].grad().clone(); };
    accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
    const at::Tensor one = gradient();
    net->zero_grad();
    const auto scope = accelerator.no_sync(model);
    accelerator.backward(loss_of(model, small_nets::whole(dataset(8))) * (rank == 0 ? 1.0 : 3.0));
    accelerator.trigger_sync_in_backward(model);
    accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
    if (!torch::allclose(gradient(), one * 3.0, 1e-4, 1e-6)) return std::string("no mean of both");
    accelerator.backward(loss_of(model, small_nets::whole(dataset(8))) * (rank == 0 ? 1.0 : 3.0));
    const double factor = rank == 0 ? 4.0 : 6.0;  // it was for one backward
    return torch::allclose(gradient(), one * factor, 1e-4, 1e-6) ? std::string()
                                                                 : std::string("goes on");
  });
  EXPECT_THAT(words, Each(""));
}

/// Whether the ranks' first numbers of each epoch are the same; they part after them.
std::vector<std::string> first_draws(const std::vector<std::string>& rng_types) {
  return run_world(2, [&](int64_t, const auto&) {
    Accelerator accelerator({.cpu = true, .rng_types = rng_types});
    auto net = sequential();
    auto [model, loader] =
        accelerator.prepare(net, levin::DataLoader(dataset(8), {.batch_size = 4}));
    std::string agree;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for ([[maybe_unused]] const auto& batch : loader) {
        const at::Tensor drawn = accelerator.gather(torch::rand({1, 5}));
        agree += torch::equal(drawn[0], drawn[1]) ? "same" : "own";
        torch::rand({1 + accelerator.process_index()});
        break;
      }
    }
    return agree;
  });
}

TEST(RngTypes, OfTorchMakeTheProcessesDrawTheSame) {
  EXPECT_THAT(first_draws({"torch", "generator"}), Each("samesame"));
}

TEST(RngTypes, WithoutTorchEachProcessDrawsItsOwn) {
  EXPECT_THAT(first_draws({"generator"}), Each("ownown"));
}

TEST(RngTypes, OfAnotherNameAreAnError) {
  EXPECT_THAT(
      error_of([] { Accelerator({.cpu = true, .rng_types = {"numpy"}}); }),
      StartsWith("accelerator.rng_types: got 'numpy' in rng_types, wanted generator, torch or "
                 "cuda"));
}

TEST(DataSeed, GivesTheOrderOfALoaderOfThatSeed) {
  const auto order = [](const AcceleratorOptions& options, std::optional<int64_t> seed) {
    Accelerator accelerator(options);
    auto [loader] = accelerator.prepare(
        levin::DataLoader(dataset(16), {.batch_size = 16, .shuffle = true, .seed = seed}));
    return (*loader.begin())["image"].clone();
  };
  const at::Tensor wanted = order({.cpu = true}, 77);
  EXPECT_TRUE(
      torch::equal(order({.cpu = true, .dataloader_config = {.data_seed = 77}}, {}), wanted));
  EXPECT_FALSE(torch::equal(order({.cpu = true}, {}), wanted));
}

TEST(Autocast, CanBeTakenOff) {
  Accelerator accelerator({.mixed_precision = "bf16", .cpu = true});
  const at::Tensor x = torch::ones({2, 2});
  const auto scope = accelerator.autocast();
  EXPECT_EQ(x.mm(x).scalar_type(), at::kBFloat16);
  {
    const auto off = accelerator.autocast({.enabled = false});
    EXPECT_EQ(x.mm(x).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(x.mm(x).scalar_type(), at::kBFloat16);
}

TEST(Save, WritesOnceAndTellsAllProcessesWhatWentWrong) {
  const auto words = run_world(2, [](int64_t, const std::filesystem::path& folder) {
    Accelerator accelerator({.cpu = true});
    levin::State tensors;
    tensors.set("x", at::full({2}, static_cast<double>(accelerator.process_index() + 1)));
    accelerator.save(tensors, folder / "x.safetensors");
    const levin::State back = levin::load_weights(folder / "x.safetensors");
    if (!torch::equal(back.tensor("x"), torch::ones({2}))) return std::string("not the main one's");
    accelerator.wait_for_everyone();
    const std::string error =
        error_of([&] { accelerator.save(tensors, folder / "x.safetensors" / "y.safetensors"); });
    return error.find("on rank 0") == std::string::npos ? error : std::string();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ProjectConfiguration, BeginsAtItsIteration) {
  const Scratch scratch;
  Accelerator accelerator(
      {.cpu = true,
       .project_dir = scratch.str(),
       .project_config = {.automatic_checkpoint_naming = true, .iteration = 5}});
  auto net = sequential();
  accelerator.prepare(net);
  accelerator.save_state();
  accelerator.save_state();
  EXPECT_THAT(names_in(scratch / "checkpoints"), ElementsAre("checkpoint_5", "checkpoint_6"));
  EXPECT_THAT(error_of([] { Accelerator({.cpu = true, .project_config = {.iteration = -1}}); }),
              StartsWith("accelerator.project: got total_limit = 0 and iteration = -1"));
}

// Two processes that take themselves for two machines: each has a folder of its own.
TEST(ProjectConfiguration, SavesOnEachMachineWhereAsked) {
  const auto words = run_world(2, [](int64_t rank, const std::filesystem::path& folder) {
    ::setenv("LOCAL_RANK", "0", 1);
    ::setenv("LOCAL_WORLD_SIZE", "1", 1);
    const auto own = folder / ("machine_" + std::to_string(rank));
    Accelerator accelerator({.cpu = true,
                             .project_config = {.save_on_each_node = true},
                             .engine = {.comm = {.backend = "gloo"}}});
    auto net = sequential();
    auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.1}));
    accelerator.save_state(own);
    accelerator.load_state(own);  // what the other machine wrote is not there
    const auto elsewhere = folder / ("machine_" + std::to_string(1 - rank));
    return std::filesystem::exists(elsewhere) ? std::string() : std::string("written by one alone");
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Profile, LeavesATraceOfEachProcess) {
  const auto words = run_world(2, [](int64_t rank, const std::filesystem::path& folder) {
    Accelerator accelerator({.cpu = true, .strategy = "ddp"});
    auto net = sequential();
    auto [model, optimizer] = accelerator.prepare(net, sgd({.lr = 0.1}));
    {
      const auto profiler = accelerator.profile({.output_trace_dir = (folder / "trace").string()});
      accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
      optimizer.step();
    }
    const std::string trace =
        levin::test::get(folder / "trace" / ("profile_" + std::to_string(rank) + ".json"));
    return trace.find("aten::addmm") == std::string::npos ? std::string("no operator in it")
                                                          : std::string();
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
