// Batches that give no gradients (training_step skips them, or their weight is 0), on one rank and
// on several, and optimizers that do not step after each training step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace skipped_batch {
namespace {

using namespace small_run;  // NOLINT
using levin::test::run_world;
using ::testing::Each;

/// In double, by Adam: a step with gradients of zero would show.
struct Skipping : levin::Module {
  torch::nn::Linear layer{nullptr};
  /// The weight of a batch by the first sample's number; below 0: skipped; unset: all count alike.
  std::function<double(int64_t first)> weight;
  bool as_tensor = false;

  Skipping() {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(6, 2));
    layer->to(torch::kDouble);
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    const at::Tensor x = batch["x"].to(torch::kDouble);
    const double counts = weight(batch["number"][0].item<int64_t>());
    if (counts < 0.0) return {};
    const at::Tensor target = counts == 0.0 ? torch::full_like(batch["y"], -100) : batch["y"];
    if (as_tensor) {
      set_loss_weight(torch::tensor(counts, torch::kDouble));
    } else if (weighs) {
      set_loss_weight(counts);
    }
    return torch::nn::functional::cross_entropy(layer->forward(x), target);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adam({.lr = 0.05});
  }
  bool weighs = false;
};

struct Case {
  std::string name;
  std::function<double(int64_t)> weight;
  bool weighs = false;
  bool as_tensor = false;
  int64_t steps = 12;  ///< of an epoch
  std::string comm_hook = "none";
};
std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

/// 2 epochs of 48 samples, one a batch, in groups of 4 on all ranks together.
std::string train(const Case& one, const fs::path& root, const std::string& name) {
  auto options = quiet(root.string());
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  const char* world = std::getenv("WORLD_SIZE");
  options.accumulate_grad_batches = 4 / std::stoll(world);
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Skipping>();
  net->weight = one.weight;
  net->weighs = one.weighs;
  net->as_tensor = one.as_tensor;
  trainer.fit(net, levin::DataLoader(numbered(48), {.batch_size = 1}));
  levin::save_weights(root / (name + ".safetensors"), levin::module_state(*net));
  if (trainer.global_step() == 2 * one.steps) return "";
  return c10::str("took ", trainer.global_step(), " steps");
}

class SkippedBatch : public ::testing::TestWithParam<Case> {};

TEST_P(SkippedBatch, RanksEqualOneRank) {
  const Case& one = GetParam();
  const Scratch alone;
  ASSERT_THAT(run_world(1, [&](int64_t, const fs::path&) { return train(one, alone.path(), "w"); }),
              Each(""));
  for (const int64_t ranks : {2, 4}) {
    EXPECT_THAT(run_world(ranks,
                          [&](int64_t rank, const fs::path& folder) {
                            const std::string name = std::to_string(rank);
                            const std::string said = train(one, folder, name);
                            if (!said.empty()) return said;
                            return off_by(folder / (name + ".safetensors"), alone / "w.safetensors",
                                          1e-9);
                          }),
                Each(""))
        << ranks << " ranks";
  }
}

double always(int64_t) { return 1.0; }
double not_the_last(int64_t n) { return n % 4 == 3 ? -1.0 : 1.0; }
double not_the_first(int64_t n) { return n % 4 == 0 ? -1.0 : 1.0; }
double not_the_odd(int64_t n) { return n % 2 == 1 ? -1.0 : 1.0; }
double not_every_third_group(int64_t n) { return n / 4 % 3 == 1 ? -1.0 : 1.0; }
double not_the_first_group(int64_t n) { return n / 4 == 0 || n % 2 == 0 ? -1.0 : 2.0; }
double uneven(int64_t n) { return 1.0 + static_cast<double>(n % 3); }
double last_is_empty(int64_t n) { return n % 4 == 3 ? 0.0 : uneven(n); }
double odd_are_empty(int64_t n) { return n % 2 == 1 ? 0.0 : uneven(n); }
double third_group_is_empty(int64_t n) { return n / 4 % 3 == 1 ? 0.0 : uneven(n); }
double skipped_and_empty(int64_t n) { return n % 4 == 3 ? -1.0 : n % 4 == 2 ? 0.0 : uneven(n); }

INSTANTIATE_TEST_SUITE_P(
    All, SkippedBatch,
    ::testing::Values(
        Case{"None", always}, Case{"TheLast", not_the_last}, Case{"TheFirst", not_the_first},
        Case{"AllOfSomeRanks", not_the_odd},
        Case{.name = "WholeGroups", .weight = not_every_third_group, .steps = 8},
        Case{"Uneven", uneven, true}, Case{"TheLastIsEmpty", last_is_empty, true},
        Case{"SomeRanksAreEmpty", odd_are_empty, true},
        Case{.name = "GroupsAreEmpty", .weight = third_group_is_empty, .weighs = true, .steps = 8},
        Case{.name = "WeightedFromTheSecondGroup",
             .weight = not_the_first_group,
             .weighs = true,
             .steps = 11},
        Case{"SkippedAndEmpty", skipped_and_empty, true}, Case{"UnevenTensors", uneven, true, true},
        Case{"EmptyTensors", last_is_empty, true, true},
        Case{"SkippedAndEmptyTensors", skipped_and_empty, true, true}),
    [](const auto& info) { return info.param.name; });

TEST(SkippedBatchRecorded, WhereStepsAreRecordedOnSeveralRanksIsAnError) {
  const auto said = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    auto options = quiet(folder.string());
    options.enable_checkpointing = false;
    options.max_epochs = 1;
    options.engine.compile = "replay";
    options.engine.comm.timeout_s = levin::test::patient_s(5);
    const auto net = std::make_shared<Skipping>();
    net->weight = rank == 1 ? not_the_last : always;  // which has the odd samples
    levin::Trainer(options).fit(net, levin::DataLoader(numbered(48), {.batch_size = 1}));
    return "";
  });
  EXPECT_THAT(said[1], ::testing::HasSubstr("strategy.skipped_batch"));
  EXPECT_THAT(said[0], ::testing::Not(::testing::AnyOf("", "no word")));
}

TEST(LossWeight, ARankThatSetsNoneWhereOthersDoIsAnError) {
  const auto said = run_world(2, [&](int64_t rank, const fs::path& folder) {
    return train({.name = "", .weight = uneven, .weighs = rank == 1}, folder, "w");
  });
  EXPECT_THAT(said[0], ::testing::HasSubstr("call it on all"));
}

TEST(LossWeight, AnEpochThatIsLeftInsideAGroupLeavesNoWeightBehind) {
  struct Leaving : Skipping {
    bool leaves = false;
    bool on_train_batch_start(const levin::Batch&, int64_t index) override {
      return !leaves || current_epoch() != 0 || index != 13;  // inside the fourth group
    }
  };
  const auto trained = [](bool leaves) {
    auto options = quiet(".");
    options.enable_checkpointing = false;
    options.max_epochs = 2;
    options.accumulate_grad_batches = 4;
    const auto net = std::make_shared<Leaving>();
    net->weight = uneven;
    net->weighs = true;
    net->leaves = leaves;
    levin::Trainer trainer(options);
    if (leaves) {
      trainer.fit(net, levin::DataLoader(numbered(48), {.batch_size = 1}));
      return net;
    }
    // The same samples without what the epoch's end cuts off.
    options.max_epochs = 1;
    auto steps = torch::cat({torch::arange(12), torch::arange(48)});
    const auto all = numbered(48)->get(std::vector<int64_t>([&] {
      std::vector<int64_t> list(60);
      for (int64_t i = 0; i < 60; ++i) list[static_cast<size_t>(i)] = steps[i].item<int64_t>();
      return list;
    }()));
    levin::Trainer(options).fit(
        net, levin::DataLoader(levin::data::tensors(
                                   {{"x", all["x"]}, {"y", all["y"]}, {"number", all["number"]}}),
                               {.batch_size = 1}));
    return net;
  };
  expect_same_weights(*trained(true), *trained(false));
}

TEST(LossGuard, SeesTheLossAsTrainingStepReturnedIt) {
  // Weights and a short group at each epoch's end: what backward is given jumps by 100.
  for (const bool weighs : {false, true}) {
    const Scratch root;
    auto options = quiet(root.str());
    options.enable_checkpointing = false;
    options.max_epochs = 3;
    options.accumulate_grad_batches = 8;
    options.engine.loss_guard = {.spike_policy = "stop", .spike_factor = 3.0, .spike_window = 4};
    const auto net = std::make_shared<Skipping>();
    net->weight = [](int64_t n) { return n % 8 == 7 ? 1000.0 : 1.0; };
    net->weighs = weighs;
    levin::Trainer trainer(options);
    EXPECT_NO_THROW(trainer.fit(net, levin::DataLoader(numbered(49), {.batch_size = 4}))) << weighs;
  }
}

// ---- Frequencies

struct Two : Skipping {
  int64_t frequency = 3;
  std::vector<int64_t> validated_at;
  Two() { weight = always; }
  void on_validation_end() override { validated_at.push_back(global_step()); }
  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::adam({.lr = 0.1}).parameters("*weight"),
            levin::optim::adam({.lr = 0.1}).parameters("*bias").frequency(frequency)};
  }
};

levin::TrainerOptions of_two(const std::string& root) {
  auto options = quiet(root);
  options.max_epochs = 3;
  return options;
}

levin::DataLoader of_size(int64_t batches) {
  return levin::DataLoader(numbered(batches), {.batch_size = 1});
}

TEST(Frequency, ValidationAndLimitsAskForTrainingStepsOnly) {
  const Scratch root;
  auto options = of_two(root.str());
  const auto net = std::make_shared<Two>();
  levin::Trainer trainer(options);
  trainer.fit(net, of_size(7), of_size(2));
  EXPECT_EQ(net->validated_at, (std::vector<int64_t>{7, 14, 21}));
  options.max_steps = 5;
  levin::Trainer limited(options);
  limited.fit(std::make_shared<Two>(), of_size(7));
  EXPECT_EQ(limited.global_step(), 5);
}

TEST(Frequency, ARunResumedBetweenItsStepsEqualsOneThatWasNotStopped) {
  for (const int64_t stop : {1, 2, 4, 8, 10}) {
    const Scratch whole, parts;
    auto options = of_two(whole.str());
    const auto wanted = std::make_shared<Two>();
    levin::Trainer(options).fit(wanted, of_size(7));
    options = of_two(parts.str());
    options.max_steps = stop;
    levin::Trainer(options).fit(std::make_shared<Two>(), of_size(7));
    options.max_steps = -1;
    options.ckpt_path = "last";
    const auto resumed = std::make_shared<Two>();
    levin::Trainer(options).fit(resumed, of_size(7));
    expect_same_weights(*wanted, *resumed);
  }
}

TEST(Frequency, ABadLossLeavesNothingInGradientsThatWait) {
  struct Bad : Two {
    at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
      const at::Tensor loss = Two::training_step(batch, index);
      return index == 1 ? loss * std::numeric_limits<double>::quiet_NaN() : loss;
    }
  };
  const Scratch root;
  auto options = of_two(root.str());
  options.engine.loss_guard.nan_policy = "skip";
  const auto net = std::make_shared<Bad>();
  levin::Trainer trainer(options);
  trainer.fit(net, of_size(7));
  EXPECT_TRUE(net->layer->bias.isfinite().all().item<bool>());
  EXPECT_TRUE(net->layer->weight.isfinite().all().item<bool>());
  EXPECT_EQ(trainer.optimizers()[1].steps(), 6);  // the second bad loss is of the third one's step
}

}  // namespace
}  // namespace skipped_batch
