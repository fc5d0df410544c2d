// States that several processes save and load together, behind the loop too, and on other numbers of
// processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <sstream>

#include "levin/checkpoint/sharded_weights.h"
#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/same_weights.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

namespace fs = std::filesystem;
using levin::Accelerator;
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
