// save_state and load_state: a run that goes on from the disk is the run that was not interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/same_weights.h"
#include "tests/support/scratch.h"

namespace {

using levin::Accelerator;
using levin::State;
using levin::optim::adamw;
using levin::optim::sgd;
using levin::test::error_of;
using levin::test::expect_same_weights;
using levin::test::Scratch;
using small_nets::dataset;
using small_nets::loss_of;
using small_nets::OwnNet;
using small_nets::sequential;
using ::testing::StartsWith;

constexpr int64_t kEpochs = 3;

struct Way {
  std::string name;
  std::string precision;
  int64_t num_workers;
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

/// A program with a loop of its own; `seed` is not the same the second time it is started.
struct Program {
  Accelerator accelerator;
  torch::nn::Sequential net;
  levin::PreparedModel<torch::nn::SequentialImpl> model;
  levin::PreparedOptimizer optimizer;
  levin::PreparedLoader loader;
  std::vector<double> losses;

  Program(const Way& way, uint64_t seed)
      : accelerator({.mixed_precision = way.precision, .cpu = true}),
        net((torch::manual_seed(seed), small_nets::with_dropout())),
        model(std::get<0>(accelerator.prepare(net))),
        optimizer(std::get<0>(accelerator.prepare(
            adamw({.lr = 1e-2})
                .schedule(levin::optim::cosine({.warmup_steps = 3, .total_steps = 40}))))),
        loader(std::get<0>(accelerator.prepare(levin::DataLoader(
            dataset(100), {.batch_size = 8, .shuffle = true, .num_workers = way.num_workers})))) {}

  /// Trains to the end of the last epoch, or until so many steps were done.
  void train(int64_t until_step = -1) {
    while (loader.loader().epoch() < kEpochs) {
      for (const auto& batch : loader) {
        optimizer.zero_grad();
        const at::Tensor loss = loss_of(model, batch);
        accelerator.backward(loss);
        accelerator.clip_grad_norm(0.5);
        optimizer.step();
        losses.push_back(loss.item<double>());
        if (optimizer.steps() == until_step) return;
      }
    }
  }
};

class AcceleratorResume : public ::testing::TestWithParam<Way> {};

TEST_P(AcceleratorResume, EqualsTheRunThatWasNotInterrupted) {
  Program whole(GetParam(), 11);
  whole.train();
  const int64_t per_epoch = 13;
  ASSERT_EQ(whole.optimizer.steps(), kEpochs * per_epoch);
  for (const int64_t step : {int64_t{1}, int64_t{7}, per_epoch, per_epoch + 5, 3 * per_epoch - 1}) {
    const Scratch scratch;
    {
      Program first(GetParam(), 11);
      first.train(step);
      first.accelerator.save_state(scratch / "state");
    }
    Program second(GetParam(), 99);
    second.accelerator.load_state(scratch / "state");
    EXPECT_EQ(second.optimizer.steps(), step);
    second.train();
    expect_same_weights(*whole.net, *second.net);
    EXPECT_EQ(std::vector<double>(whole.losses.begin() + step, whole.losses.end()), second.losses)
        << "after step " << step;
    EXPECT_EQ(whole.optimizer.learning_rate(), second.optimizer.learning_rate());
  }
}

TEST_P(AcceleratorResume, SavingOnTheWayDoesNotChangeTheRun) {
  Program quiet(GetParam(), 11);
  quiet.train();
  Program saving(GetParam(), 11);
  const Scratch scratch;
  for (const int64_t step : {3, 13, 20}) {
    saving.train(step);
    saving.accelerator.save_state(scratch / "state");
    saving.accelerator.load_state(scratch / "state");
  }
  saving.train();
  expect_same_weights(*quiet.net, *saving.net);
}

TEST_P(AcceleratorResume, LoadingInTheSameProcessGoesBack) {
  Program program(GetParam(), 11);
  const Scratch scratch;
  program.train(6);
  program.accelerator.save_state(scratch / "state");
  const auto losses_from_there = [&] {
    program.accelerator.load_state(scratch / "state");
    program.losses.clear();
    program.train(16);
    return program.losses;
  };
  const auto first = losses_from_there();
  EXPECT_EQ(losses_from_there(), first);
}

INSTANTIATE_TEST_SUITE_P(Ways, AcceleratorResume,
                         ::testing::Values(Way{"float32", "no", 0}, Way{"workers", "no", 2},
                                           Way{"bfloat16", "bf16", 2}),
                         [](const auto& info) { return info.param.name; });

TEST(AcceleratorState, TakesSeveralModelsAndOptimizers) {
  const Scratch scratch;
  OwnNet one, two, one_again, two_again;
  const auto prepare = [](Accelerator& accelerator, OwnNet& first, OwnNet& second) {
    return accelerator.prepare(first, second, adamw({.lr = 0.1}).of(first),
                               sgd({.lr = 0.1, .momentum = 0.9}).of(second));
  };
  const auto step = [](auto& prepared, Accelerator& accelerator) {
    auto& [first, second, first_optimizer, second_optimizer] = prepared;
    first_optimizer.zero_grad();
    second_optimizer.zero_grad();
    const levin::Batch batch = small_nets::whole(dataset(8));
    accelerator.backward(loss_of(first, batch) + loss_of(second, batch));
    first_optimizer.step();
    second_optimizer.step();
  };
  Accelerator saved({.cpu = true}), loaded({.cpu = true});
  auto here = prepare(saved, one, two);
  auto there = prepare(loaded, one_again, two_again);
  step(here, saved);
  saved.save_state(scratch / "state");
  loaded.load_state(scratch / "state");
  step(here, saved);
  step(there, loaded);
  expect_same_weights(*one, *one_again);
  expect_same_weights(*two, *two_again);
}

TEST(AcceleratorState, TakesUpTheRandomGenerator) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true});
  accelerator.save_state(scratch / "state");
  const at::Tensor wanted = torch::rand({4});
  torch::rand({7});
  accelerator.load_state(scratch / "state");
  EXPECT_TRUE(torch::equal(torch::rand({4}), wanted));
}

/// Something of the user's own that is to be saved too.
struct Counter {
  int64_t count = 0;
  State state_dict() const {
    State state;
    return std::move(state.set("count", count));
  }
  void load_state_dict(const State& state) { count = state.integer("count"); }
};

TEST(AcceleratorState, TakesWhatWasRegistered) {
  const Scratch scratch;
  Counter first{3}, second{4};
  Accelerator accelerator({.cpu = true});
  accelerator.register_for_checkpointing(first);
  accelerator.register_for_checkpointing(second);
  accelerator.save_state(scratch / "state");
  first.count = second.count = 0;
  accelerator.load_state(scratch / "state");
  EXPECT_EQ(first.count, 3);
  EXPECT_EQ(second.count, 4);
}

/// What load_state says when `save` was prepared for the saving and `load` for the loading.
template <class Prepare, class Other>
std::string error_between(Prepare save, Other load) {
  const Scratch scratch;
  Accelerator saved({.cpu = true}), loaded({.cpu = true});
  save(saved);
  saved.save_state(scratch / "state");
  load(loaded);
  return error_of([&] { loaded.load_state(scratch / "state"); });
}

TEST(AcceleratorState, AnotherNumberOfModelsIsAnErrorThatNamesBoth) {
  EXPECT_THAT(error_between([](auto& a) { a.prepare(OwnNet()); },
                            [](auto& a) { a.prepare(OwnNet(), OwnNet()); }),
              StartsWith("accelerator.state: the checkpoint holds 1 modules, but 2 are prepared"));
}

TEST(AcceleratorState, AnotherNumberOfOptimizersIsAnErrorThatNamesBoth) {
  EXPECT_THAT(
      error_between([](auto& a) { a.prepare(OwnNet(), sgd()); },
                    [](auto& a) { a.prepare(OwnNet()); }),
      StartsWith("accelerator.state: the checkpoint holds 1 optimizers, but 0 are prepared"));
}

TEST(AcceleratorState, AnotherNumberOfLoadersIsAnErrorThatNamesBoth) {
  EXPECT_THAT(
      error_between([](auto&) {}, [](auto& a) { a.prepare(levin::DataLoader(dataset(8))); }),
      StartsWith("accelerator.state: the checkpoint holds 0 loaders, but 1 are prepared"));
}

TEST(AcceleratorState, AnotherNumberOfRegisteredObjectsIsAnErrorThatNamesBoth) {
  Counter counter;
  EXPECT_THAT(error_between([](auto&) {}, [&](auto& a) { a.register_for_checkpointing(counter); }),
              StartsWith("accelerator.state: the checkpoint holds 0 registered objects, but 1"));
}

TEST(AcceleratorState, AnotherModelsStateIsAnErrorThatLeavesTheModelAsItWas) {
  torch::nn::Linear other(6, 16);
  const at::Tensor before = other->weight.clone();
  EXPECT_THAT(
      error_between([](auto& a) { a.prepare(sequential()); }, [&](auto& a) { a.prepare(other); }),
      StartsWith("module.state."));
  EXPECT_TRUE(torch::equal(other->weight, before));
}

TEST(AcceleratorState, AnotherOptimizersStateIsAnErrorThatNamesBoth) {
  EXPECT_THAT(error_between([](auto& a) { a.prepare(OwnNet(), sgd()); },
                            [](auto& a) { a.prepare(OwnNet(), adamw()); }),
              StartsWith("optim.state.kind: the state is of optimizer 'sgd', wanted 'adamw'"));
}

TEST(AcceleratorState, AnotherDataSetsStateIsAnErrorThatNamesBothSizes) {
  EXPECT_THAT(error_between([](auto& a) { a.prepare(levin::DataLoader(dataset(8))); },
                            [](auto& a) { a.prepare(levin::DataLoader(dataset(9))); }),
              StartsWith("data.loader.state: the state is of a dataset of 8 samples"));
}

TEST(AcceleratorState, WeightsOfAnotherNameAreAnErrorThatNamesTheWantedOne) {
  Accelerator accelerator({.cpu = true});
  accelerator.prepare(OwnNet());
  levin::Checkpoint state = accelerator.state_dict();
  state.weights["net"] = state.weights.extract("model").mapped();
  EXPECT_THAT(error_of([&] { accelerator.load_state_dict(state); }),
              StartsWith("accelerator.state: the checkpoint holds no weights named 'model'"));
}

TEST(AcceleratorState, AMissingFolderIsAnErrorThatNamesIt) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true});
  EXPECT_THAT(error_of([&] { accelerator.load_state(scratch / "none"); }),
              StartsWith("checkpoint.missing: the checkpoint folder '" + scratch.str() + "/none'"));
}

TEST(AcceleratorState, ADamagedFolderIsAnErrorThatLeavesTheModelAsItWas) {
  const Scratch scratch;
  Accelerator accelerator({.cpu = true});
  OwnNet net;
  accelerator.prepare(net);
  accelerator.save_state(scratch / "state");
  torch::NoGradGuard no_grad;
  net->out->weight.fill_(7.0);
  std::ofstream(scratch / "state/training_state.json", std::ios::app) << ' ';
  EXPECT_THAT(error_of([&] { accelerator.load_state(scratch / "state"); }),
              StartsWith("checkpoint.corrupt"));
  EXPECT_TRUE(torch::equal(net->out->weight, torch::full_like(net->out->weight, 7.0)));
}

TEST(AcceleratorState, SavedOverTheStateItWasLoadedFromLoadsAgain) {
  const Scratch scratch;
  OwnNet net;
  Accelerator accelerator({.cpu = true});
  accelerator.prepare(net, adamw());
  accelerator.save_state(scratch / "state");
  accelerator.load_state(scratch / "state");
  accelerator.save_state(scratch / "state");
  accelerator.load_state(scratch / "state");
  expect_same_weights(*net, *OwnNet());
}

}  // namespace
