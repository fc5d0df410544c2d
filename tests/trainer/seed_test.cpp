// What a seed holds for: all that is made after the options were read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "levin/base/log_sink.h"
#include "tests/trainer/small_run.h"

namespace {

using small_run::Net;
using small_run::quiet;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The weights of a network that is made between the reading of the options and the Trainer, from
/// generators that stand anywhere.
std::vector<at::Tensor> made_after(std::vector<const char*> arguments,
                                   levin::TrainerOptions defaults = {}) {
  levin::seed_everything(static_cast<int64_t>(std::random_device()()));
  arguments.insert(arguments.begin(), "program");
  levin::parse<levin::TrainerOptions>(static_cast<int>(arguments.size()), arguments.data(),
                                      std::move(defaults));
  return Net().parameters();
}

void expect_seeded_by(int64_t seed, const std::vector<at::Tensor>& made) {
  levin::seed_everything(seed);
  const auto wanted = Net().parameters();
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(torch::equal(made[i], wanted[i])) << i;
}

TEST(Seed, OfAFlagHoldsFromTheReadingOfTheOptions) {
  expect_seeded_by(7, made_after({"--seed", "7"}));
}

TEST(Seed, OfTheProgramHoldsFromTheReadingOfTheOptions) {
  levin::TrainerOptions defaults;
  defaults.seed = 8;
  expect_seeded_by(8, made_after({}, defaults));
  expect_seeded_by(9, made_after({"--seed", "9"}, defaults));
}

TEST(Seed, OfAFileHoldsFromTheReadingOfTheOptions) {
  const levin::test::Scratch scratch;
  const std::string file = (scratch / "run.toml").string();
  std::ofstream(file) << "seed = 10\n";
  expect_seeded_by(10, made_after({"--config", file.c_str()}));
}

struct RunOptions {
  int64_t hidden = 3;
  void fields(levin::FieldVisitor& field) { field("hidden", hidden, "units"); }
};

TEST(Seed, HoldsWhereOtherOptionsAreReadToo) {
  levin::seed_everything(1);
  const char* arguments[] = {"program", "--hidden", "5", "--seed", "11"};
  RunOptions run;
  levin::TrainerOptions options;
  levin::parse_into(5, arguments, run, options);
  EXPECT_EQ(run.hidden, 5);
  EXPECT_EQ(levin::current_seed(), 11);
}

TEST(Seed, WithoutOneNothingIsSeeded) {
  levin::seed_everything(12);
  const char* arguments[] = {"program"};
  levin::parse<levin::TrainerOptions>(1, arguments);
  EXPECT_EQ(levin::current_seed(), 12);
}

/// The warnings of a fit about its seed.
std::vector<std::string> warnings_of(const std::function<void(const levin::TrainerOptions&)>& run,
                                     std::optional<int64_t> seed) {
  const levin::test::Scratch scratch;
  std::vector<std::string> said;
  auto before = levin::log::set_sink([&](levin::log::Level, std::string_view text) {
    if (text.find("trainer.seed") != text.npos) said.emplace_back(text);
  });
  levin::seed_everything(levin::default_seed());  // as a process that nobody has seeded
  levin::TrainerOptions options = quiet(scratch.path().string());
  options.enable_checkpointing = false;
  options.max_steps = 1;
  options.seed = seed;
  run(options);
  levin::log::set_sink(std::move(before));
  return said;
}

const levin::DataLoaderOptions kShuffled = {.batch_size = 8, .shuffle = true};

TEST(Seed, WhatWasDrawnBeforeItIsNamedOnce) {
  const auto before_the_trainer = [](const levin::TrainerOptions& options) {
    const auto net = std::make_shared<Net>();
    levin::DataLoader loader(small_run::dataset(16), kShuffled);
    levin::Trainer(options).fit(net, loader);
  };
  const auto said = warnings_of(before_the_trainer, 3);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("Net and the order of the training data come from before seed 3"));
  EXPECT_THAT(said[0], HasSubstr("levin::seed_everything(3)"));
  EXPECT_THAT(warnings_of(before_the_trainer, std::nullopt), IsEmpty());
}

TEST(Seed, WhatIsDrawnAfterItIsNotNamed) {
  EXPECT_THAT(warnings_of(
                  [](const levin::TrainerOptions& options) {
                    levin::Trainer trainer(options);
                    levin::DataLoader loader(small_run::dataset(16), kShuffled);
                    trainer.fit(std::make_shared<Net>(), loader);
                  },
                  3),
              IsEmpty());
  EXPECT_THAT(warnings_of(
                  [](const levin::TrainerOptions& options) {
                    levin::seed_everything(4);
                    const auto net = std::make_shared<Net>();
                    levin::DataLoader loader(small_run::dataset(16), kShuffled);
                    levin::Trainer(options).fit(net, loader);
                  },
                  3),
              IsEmpty());
}

/// Layers are made where the run has begun.
struct LateNet : Net {
  LateNet() { unregister_module("net"); }
  void configure_model() override {
    net = register_module("net", torch::nn::Sequential(torch::nn::Linear(6, 3)));
  }
};

TEST(Seed, LayersOfConfigureModelAreDrawnAfterIt) {
  EXPECT_THAT(warnings_of(
                  [](const levin::TrainerOptions& options) {
                    const auto net = std::make_shared<LateNet>();
                    levin::DataLoader loader(small_run::dataset(16), {.batch_size = 8});
                    levin::Trainer(options).fit(net, loader);
                  },
                  3),
              IsEmpty());
}

}  // namespace
