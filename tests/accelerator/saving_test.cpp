// States that several processes save and load together, behind the loop too, and on other numbers of
// processes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <sstream>

#include "levin/accelerator/accelerator.h"
#include "levin/checkpoint/checkpoint.h"
#include "tests/accelerator/small_nets.h"
#include "tests/checkpoint/on_disk.h"
#include "tests/support/divided.h"
#include "tests/support/error_of.h"
#include "tests/support/same_weights.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

namespace fs = std::filesystem;
using levin::Accelerator;
using levin::State;
using levin::optim::adamw;
using levin::test::get;
using levin::test::names_in;
using levin::test::run_world;
using levin::test::Scratch;
using small_nets::dataset;
using small_nets::loss_of;
using small_nets::sequential;
using ::testing::Each;
using ::testing::ElementsAre;

/// Three steps on the whole of a data set, the same on every rank, and what `then` does with them.
template <class Then>
std::vector<std::string> trained_on(int64_t ranks, const Then& then) {
  return run_world(ranks, [&](int64_t, const fs::path&) -> std::string {
    torch::manual_seed(4);
    Accelerator accelerator({.cpu = true, .strategy = "ddp"});
    auto net = sequential();
    auto [model, optimizer] = accelerator.prepare(net, adamw({.lr = 0.1}));
    auto step = [&, model = model, optimizer = optimizer]() mutable {
      optimizer.zero_grad();
      accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
      optimizer.step();
    };
    for (int i = 0; i < 3; ++i) step();
    return then(accelerator, model, step);
  });
}

/// Names of the state's children that differ, or that one lacks.
std::string other_children(const State& a, const State& b) {
  std::set<std::string> names;
  for (const State* state : {&a, &b}) {
    for (const auto& [name, value] : state->values()) names.insert(name);
  }
  std::string others;
  for (const std::string& name : names) {
    State mine, theirs;
    if (a.contains(name)) mine.set(name, a.values().find(name)->second);
    if (b.contains(name)) theirs.set(name, b.values().find(name)->second);
    if (!levin::test::difference(mine, theirs).empty()) others += name + " ";
  }
  return others;
}

// What is each rank's own: its generator, and of streams its place.
TEST(SavedTogether, TrainingStatesOfAnyNumberOfRanksDifferInGeneratorsAlone) {
  const Scratch scratch;
  for (const int64_t ranks : {1, 2, 4}) {
    const auto words = run_world(ranks, [&](int64_t, const fs::path&) -> std::string {
      torch::manual_seed(4);
      Accelerator accelerator({.cpu = true, .strategy = "ddp"});
      const levin::DataLoader data(dataset(24), {.batch_size = 8 / ranks, .shuffle = true});
      auto [model, optimizer, loader] =
          accelerator.prepare(sequential(), levin::optim::sgd({.lr = 0.0}), data);
      int64_t steps = 0;
      for (const auto& batch : loader) {
        optimizer.zero_grad();
        accelerator.backward(loss_of(model, batch));
        optimizer.step();
        if (++steps == 2) accelerator.save_state(scratch / std::to_string(ranks));
      }
      return steps == 3 ? "" : "other steps";
    });
    ASSERT_THAT(words, Each(""));
  }
  const State one = levin::load_checkpoint(scratch / "1").training;
  for (const char* ranks : {"2", "4"}) {
    const State more = levin::load_checkpoint(scratch / ranks).training;
    EXPECT_EQ(other_children(one, more), "processes random_of_ranks ") << ranks;
    EXPECT_EQ(get(scratch / "1/model.safetensors"), get(scratch / ranks / "model.safetensors"));
  }
}

// Such a number would be counted up to before anything else.
TEST(SavedTogether, ANumberOfProcessesThatDidNotSaveIsRefused) {
  const Scratch scratch;
  const auto prepared = [](Accelerator& accelerator) {
    accelerator.prepare(sequential(), levin::optim::sgd({.lr = 0.0}),
                        levin::DataLoader(dataset(24), {.batch_size = 8}));
  };
  Accelerator saving({.cpu = true});
  prepared(saving);
  saving.save_state(scratch / "saved");
  levin::Checkpoint forged = levin::load_checkpoint(scratch / "saved");
  for (const int64_t processes : {int64_t{1} << 62, int64_t{2}, int64_t{0}, int64_t{-1}}) {
    forged.training.set("processes", processes);
    levin::save_checkpoint(scratch / "forged", forged);
    Accelerator loading({.cpu = true});
    prepared(loading);
    EXPECT_THAT(levin::test::error_of([&] { loading.load_state(scratch / "forged"); }),
                ::testing::HasSubstr(fmt::format("accelerator.state: the checkpoint says that {} "
                                                 "processes saved it, but it holds the random "
                                                 "generators of 1",
                                                 processes)));
  }
}

/// What a strategy that divides parameters by rows leaves between steps.
TEST(SavedTogether, RowsOfDividedParametersAreTheWholeModelsFiles) {
  const Scratch scratch;
  const auto on = [&](int64_t ranks, bool divides, const auto& then) {
    const auto words = run_world(ranks, [&](int64_t, const fs::path&) -> std::string {
      torch::manual_seed(4);
      Accelerator accelerator({.cpu = true});
      auto net = sequential();
      accelerator.prepare(net);
      const levin::comm::DeviceMesh mesh(accelerator.world(), {{"dp", ranks}});
      const auto rows = divides ? levin::test::divide(levin::named_parameters(*net), mesh)
                                : std::vector<std::shared_ptr<levin::shard::ShardedParameter>>();
      auto [optimizer] = accelerator.prepare(levin::optim::sgd({.lr = 0.5, .momentum = 0.5}));
      for (const at::Tensor& parameter : net->parameters()) {
        parameter.mutable_grad() = torch::ones_like(parameter);
      }
      optimizer.step();
      return then(accelerator, *net);
    });
    EXPECT_THAT(words, Each(""));
  };
  const auto saves = [&](const std::string& name) {
    return [&scratch, name](Accelerator& accelerator, auto&) {
      accelerator.save_state(scratch / name);
      return std::string();
    };
  };
  on(1, false, saves("whole"));
  on(3, true, saves("rows"));
  EXPECT_EQ(get(scratch / "whole/model.safetensors"), get(scratch / "rows/model.safetensors"));
  for (const int64_t ranks : {1, 2, 3}) {
    on(ranks, true, [&](Accelerator& accelerator, torch::nn::Module& net) -> std::string {
      std::vector<at::Tensor> before;
      for (const at::Tensor& parameter : net.parameters()) {
        before.push_back(parameter.detach().clone());
        const at::NoGradGuard no_grad;
        parameter.zero_();
      }
      accelerator.load_state(scratch / "rows");
      for (size_t i = 0; i < before.size(); ++i) {
        if (!torch::equal(before[i], net.parameters()[i])) return "parameter " + std::to_string(i);
      }
      // The moments, too, of which this process has read its rows alone.
      const levin::Checkpoint read = accelerator.read_checkpoint(scratch / "rows");
      const State& slots = read.training.child("optimizers").child("0").child("optimizer");
      const auto& slice = slots.child("parameters").child("0.weight").slice("momentum_buffer");
      return slice.local.sizes() == net.parameters()[0].sizes() ? ""
                                                                : c10::str(slice.local.sizes());
    });
  }
}

/// Weights after three steps on that number of ranks, and after two more; between them the state is
/// saved, or loaded from `from` in place of the first steps.
std::string trained_by(const std::string& strategy, int64_t ranks, const Scratch& scratch,
                       const std::string& name, const std::string& from) {
  const auto words = run_world(ranks, [&](int64_t, const fs::path&) -> std::string {
    torch::manual_seed(4);
    Accelerator accelerator({.cpu = true, .strategy = strategy});
    auto [model, optimizer] = accelerator.prepare(sequential(), adamw({.lr = 0.1}));
    auto steps = [&, model = model, optimizer = optimizer](int64_t count) mutable {
      for (int64_t step = 0; step < count; ++step) {
        optimizer.zero_grad();
        accelerator.backward(loss_of(model, small_nets::whole(dataset(8))));
        accelerator.clip_grad_norm(0.5);
        optimizer.step();
      }
    };
    if (from.empty()) {
      steps(3);
      accelerator.save_state(scratch / (name + "_3"));
    } else {
      accelerator.load_state(scratch / from);
      accelerator.save_state(scratch / (name + "_3"));
    }
    steps(2);
    accelerator.save_state(scratch / (name + "_5"));
    return "";
  });
  return fmt::format("{}", fmt::join(words, ""));
}

TEST(SavedTogether, ShardedRunsGoOnOnOtherNumbersOfRanksAndWithOtherStrategies) {
  const Scratch scratch;
  ASSERT_EQ(trained_by("auto", 1, scratch, "one", ""), "");
  ASSERT_EQ(trained_by("fsdp", 3, scratch, "three", ""), "");
  for (const auto& [strategy, ranks] :
       {std::pair("fsdp", 2), std::pair("zero", 3), std::pair("ddp", 2), std::pair("auto", 1)}) {
    const std::string name = fmt::format("{}_{}", strategy, ranks);
    ASSERT_EQ(trained_by(strategy, ranks, scratch, name, "three_3"), "") << name;
    // What was loaded is what was saved, whoever has it; and it goes on as one process does.
    EXPECT_EQ(get(scratch / "three_3/model.safetensors"),
              get(scratch / (name + "_3") / "model.safetensors"));
    const State after = levin::load_weights(scratch / (name + "_5"));
    const State wanted = levin::load_weights(scratch / "one_5");
    for (const auto& [parameter, value] : wanted.values()) {
      EXPECT_TRUE(torch::allclose(after.tensor(parameter), wanted.tensor(parameter), 1e-4, 1e-5))
          << name << " " << parameter;
    }
  }
}

TEST(LocalSgd, RefusesDividedParameters) {
  const auto words = run_world(2, [&](int64_t, const fs::path&) -> std::string {
    Accelerator accelerator({.cpu = true});
    auto net = sequential();
    auto [model] = accelerator.prepare(net);
    const levin::comm::DeviceMesh mesh(accelerator.world(), {{"dp", 2}});
    const auto rows = levin::test::divide(levin::named_parameters(*net), mesh);
    return levin::test::told_by([&, model = model] { levin::LocalSGD(accelerator, model); });
  });
  EXPECT_THAT(words, Each(::testing::StartsWith("accelerator.local_sgd: parameter 0.weight is "
                                                "sharded over ranks, but LocalSGD needs full")));
}

TEST(SavedTogether, WeightsAreTheSameFilesOnAnyNumberOfRanks) {
  const Scratch scratch;
  for (const int64_t ranks : {1, 2, 4}) {
    const auto words = trained_on(ranks, [&](auto& accelerator, auto& model, auto&) {
      accelerator.save_state(scratch / fmt::format("state_{}", ranks));
      accelerator.save_model(model, scratch / fmt::format("model_{}", ranks), 300);
      return std::string();
    });
    ASSERT_THAT(words, Each(""));
  }
  EXPECT_EQ(names_in(scratch / "model_1").size(), 4u);
  for (const char* ranks : {"2", "4"}) {
    const std::string number = ranks;
    EXPECT_EQ(get(scratch / "state_1/model.safetensors"),
              get(scratch / ("state_" + number) / "model.safetensors"));
    for (const std::string& name : names_in(scratch / "model_1")) {
      EXPECT_EQ(get(scratch / "model_1" / name), get(scratch / ("model_" + number) / name)) << name;
    }
  }
}

TEST(SavedTogether, GeneratorsOfRanksThatWereNotThereAreTheirOwn) {
  const Scratch scratch;
  const auto draws = [] {
    const at::Tensor drawn = torch::rand({2}, torch::kDouble);
    return fmt::format("{:.17f}", drawn[0].item<double>());
  };
  const auto saved = trained_on(2, [&](auto& accelerator, auto&, auto&) {
    accelerator.save_state(scratch / "state");
    return draws();
  });
  const auto loaded = [&] {
    return trained_on(4, [&](auto& accelerator, auto&, auto&) {
      accelerator.load_state(scratch / "state");
      return draws();
    });
  };
  const auto first = loaded();
  EXPECT_EQ(first, loaded());
  EXPECT_EQ(first[0], saved[0]);
  EXPECT_EQ(first[1], saved[1]);
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 4u);
  const auto fewer = trained_on(1, [&](auto& accelerator, auto&, auto&) {
    accelerator.load_state(scratch / "state");
    return draws();
  });
  EXPECT_THAT(fewer, ElementsAre(saved[0]));
}

TEST(SavedBehindTheLoop, IsTheStateOfTheSave) {
  const Scratch scratch;
  const auto words = trained_on(2, [&](auto& accelerator, auto&, auto& step) -> std::string {
    accelerator.save_state(scratch / "waited");
    accelerator.save_state(scratch / "behind", {.async_save = true});
    for (int i = 0; i < 3; ++i) step();
    accelerator.finish_saves();
    return fs::exists(scratch / "behind") ? "" : "not there";
  });
  EXPECT_THAT(words, Each(""));
  for (const char* name : {"model.safetensors", "training_state.safetensors", "training_state.json",
                           "manifest.json"}) {
    EXPECT_EQ(get(scratch / "waited" / name), get(scratch / "behind" / name)) << name;
  }
}

TEST(SavedBehindTheLoop, IsThereAtTheLatestWhenTheAcceleratorGoes) {
  const Scratch scratch;
  const auto words = trained_on(2, [&](auto& accelerator, auto&, auto&) -> std::string {
    accelerator.save_state(scratch / "a", {.async_save = true});
    accelerator.load_state(scratch / "a");  // waits for it
    accelerator.save_state(scratch / "b", {.async_save = true});
    accelerator.save_state(scratch / "c", {.async_save = true});
    if (!fs::exists(scratch / "b")) return "b is not there";
    return "";
  });
  EXPECT_THAT(words, Each(""));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a", "b", "c"));
  EXPECT_EQ(levin::load_checkpoint(scratch / "c").weights.size(), 1u);
}

}  // namespace
