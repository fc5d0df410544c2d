// weight_averaging: EMA and mean of the weights, evaluated, saved, resumed. Ranks and strategies: sharded_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/module/parameters.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/trainer/small_run.h"

namespace weight_averaging {

using namespace small_run;  // NOLINT
using levin::State;
using levin::test::error_of;
using ::testing::HasSubstr;

/// Keeps the trained weights after each step, and those that each validation saw.
struct Watched : Net {
  std::vector<State> trained, validated;
  std::vector<int64_t> epoch_ends;  // numbers of steps
  using Net::Net;
  static State copy(const torch::nn::Module& module) {
    const State now = levin::module_state(module);
    State state;
    for (const auto& [name, value] : now.values()) state.set(name, now.tensor(name).clone());
    return state;
  }
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t) override {
    trained.push_back(copy(*this));
  }
  void on_train_epoch_end() override { epoch_ends.push_back(std::ssize(trained)); }
  void validation_step(const levin::Batch&, int64_t batch_index) override {
    if (batch_index == 0) validated.push_back(copy(*this));
  }
};

double off(const State& a, const State& b) {
  double most = 0;
  for (const auto& [name, value] : a.values()) {
    const at::Tensor difference = a.tensor(name).to(at::kDouble) - b.tensor(name).to(at::kDouble);
    most = std::max(most, difference.abs().max().item<double>());
  }
  return most;
}

/// The average of some of the states, as torch.optim.swa_utils computes it, in float64.
State average(const std::vector<State>& states, const std::vector<int64_t>& steps,
              std::optional<double> decay) {
  State mean;
  for (const auto& [name, value] : states.front().values()) {
    at::Tensor sum;
    int64_t count = 0;
    for (const int64_t step : steps) {
      const at::Tensor now = states[static_cast<size_t>(step)].tensor(name);
      if (count == 0 || !now.is_floating_point()) {
        sum = now.is_floating_point() ? now.to(at::kDouble) : now;
      } else if (decay) {
        sum = *decay * sum + (1 - *decay) * now.to(at::kDouble);
      } else {
        sum = sum + (now.to(at::kDouble) - sum) / static_cast<double>(count + 1);
      }
      ++count;
    }
    mean.set(name, sum);
  }
  return mean;
}

struct Result {
  std::shared_ptr<Watched> net;
  fs::path last;
};

/// Stops a run after so many steps; -1: never.
struct StopAt : levin::Callback {
  int64_t step;
  explicit StopAt(int64_t step) : step(step) {}
  std::string state_key() const override { return "stop_at"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == step) trainer.request_stop("the test wants it");
  }
};

Result run(const levin::WeightAveragingOptions& averaging, const fs::path& root,
           int64_t stop_at = -1, const std::string& ckpt_path = "") {
  levin::seed_everything(3);
  auto options = quiet(root.string());
  options.max_epochs = 2;
  options.callbacks = {levin::weight_averaging(averaging), std::make_shared<StopAt>(stop_at),
                       levin::model_checkpoint({.dirpath = (root / "runs").string()})};
  levin::Trainer trainer(options);
  Result result{std::make_shared<Watched>(), root / "runs" / "last"};
  trainer.fit(result.net, levin::DataLoader(dataset(40), {.batch_size = 8, .shuffle = true}),
              levin::DataLoader(dataset(16, 6), {.batch_size = 8}), {.ckpt_path = ckpt_path});
  return result;
}

TEST(WeightAveraging, IsTheExponentialAverageThatValidationFilesAndModuleHave) {
  Scratch scratch;
  const Result result = run({.decay = 0.7}, scratch.path());
  const std::vector<State>& states = result.net->trained;
  ASSERT_EQ(states.size(), 10u);
  const State after_one = average(states, {0, 1, 2, 3, 4}, 0.7);
  const State wanted = average(states, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 0.7);
  ASSERT_EQ(result.net->validated.size(), 2u);
  EXPECT_LT(off(after_one, result.net->validated[0]), 1e-6);
  EXPECT_LT(off(wanted, result.net->validated[1]), 1e-6);
  EXPECT_LT(off(wanted, Watched::copy(*result.net)), 1e-6);
  EXPECT_LT(off(wanted, levin::load_weights(result.last)), 1e-6);
  EXPECT_GT(off(wanted, states.back()), 1e-3);  // training went on with its own weights
}

TEST(WeightAveraging, IsTheMeanWithoutADecay) {
  Scratch scratch;
  const Result result = run({.decay = std::nullopt}, scratch.path());
  const State wanted = average(result.net->trained, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, std::nullopt);
  EXPECT_LT(off(wanted, levin::load_weights(result.last)), 1e-6);
}

TEST(WeightAveraging, UpdatesAtTheStepsAndEpochsThatAreWanted) {
  Scratch scratch;
  const Result by_steps =
      run({.decay = 0.5, .update_every_n_steps = 3, .update_starting_at_step = 2},
          scratch.path() / "steps");
  EXPECT_LT(off(average(by_steps.net->trained, {3, 6, 9}, 0.5), Watched::copy(*by_steps.net)),
            1e-6);
  const Result by_epochs =
      run({.decay = 0.5, .update_every_n_steps = 0, .update_starting_at_epoch = 0},
          scratch.path() / "epochs");
  EXPECT_LT(off(average(by_epochs.net->trained, {4, 9}, 0.5), Watched::copy(*by_epochs.net)), 1e-6);
}

TEST(WeightAveraging, LeavesBuffersToTheModelIfItIsTold) {
  Scratch scratch;
  const Result result = run({.decay = 0.7, .use_buffers = false}, scratch.path());
  const State weights = levin::load_weights(result.last);
  const State& trained = result.net->trained.back();
  EXPECT_TRUE(weights.tensor("net.1.running_mean").equal(trained.tensor("net.1.running_mean")));
  EXPECT_FALSE(weights.tensor("net.0.weight").equal(trained.tensor("net.0.weight")));
}

TEST(WeightAveraging, AResumedRunEqualsOneWithoutInterruption) {
  Scratch scratch;
  for (const int64_t stop : {3, 5, 7}) {  // within an epoch, at its end
    const fs::path root = scratch.path() / std::to_string(stop);
    const Result whole = run({.decay = 0.7}, root / "whole");
    const Result begun = run({.decay = 0.7}, root / "parts", stop);
    const Result ended = run({.decay = 0.7}, root / "parts", -1, begun.last.string());
    expect_same_weights(*whole.net, *ended.net);
    EXPECT_EQ(off(levin::load_weights(whole.last), levin::load_weights(ended.last)), 0.0) << stop;
    EXPECT_EQ(off(whole.net->trained.back(), ended.net->trained.back()), 0.0) << stop;
  }
}

TEST(WeightAveraging, AValidationThatThrowsLeavesTheTrainedWeights) {
  struct Throwing : Watched {
    void validation_step(const levin::Batch&, int64_t) override {
      throw std::runtime_error("no labels");
    }
  };
  Scratch scratch;
  auto options = quiet(scratch.path().string());
  options.max_epochs = 1;
  options.callbacks = {levin::weight_averaging({.decay = 0.7})};
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Throwing>();
  EXPECT_THROW(trainer.fit(net, levin::DataLoader(dataset(40), {.batch_size = 8}),
                           levin::DataLoader(dataset(8), {.batch_size = 8})),
               std::runtime_error);
  EXPECT_EQ(off(net->trained.back(), Watched::copy(*net)), 0.0);
}

TEST(WeightAveraging, OptionsOutOfRangeAreErrors) {
  EXPECT_THAT(error_of([] { levin::weight_averaging({.decay = 1.0}); }),
              HasSubstr("trainer.weight_averaging: got decay = 1, wanted at least 0 and below 1"));
  EXPECT_THAT(error_of([] { levin::weight_averaging({.update_every_n_steps = 0}); }),
              HasSubstr("the average is never updated"));
  EXPECT_THAT(error_of([] { levin::weight_averaging({.update_every_n_steps = -1}); }),
              HasSubstr("got update_every_n_steps = -1"));
}

}  // namespace weight_averaging
