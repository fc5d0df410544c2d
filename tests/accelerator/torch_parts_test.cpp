// Optimizers, schedules and loaders of LibTorch, which prepare takes as they are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <list>

#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

using levin::Accelerator;
using levin::test::error_of;
using levin::test::run_world;
using small_nets::expect_close_weights;
using small_nets::sequential;
using ::testing::Each;
using ::testing::StartsWith;

/// A user's own.
struct Numbers : torch::data::Dataset<Numbers> {
  int64_t count;

  explicit Numbers(int64_t count) : count(count) {}
  torch::data::Example<> get(size_t index) override {
    const at::Tensor x = torch::sin(torch::arange(6) + static_cast<double>(index));
    return {x, x.sum().gt(0).to(torch::kLong)};
  }
  torch::optional<size_t> size() const override { return static_cast<size_t>(count); }
};

auto loader_of(int64_t samples, int64_t batch_size) {
  return torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Numbers(samples).map(torch::data::transforms::Stack<>()), batch_size);
}

template <class Model, class Loader, class Optimizer, class Schedule, class Backward>
void train(Model& model, Loader& loader, Optimizer& optimizer, Schedule& schedule,
           const Backward& backward) {
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : loader) {
      optimizer.zero_grad();
      backward(torch::nn::functional::cross_entropy(model->forward(batch.data), batch.target));
      optimizer.step();
    }
    schedule.step();
  }
}

void train_by_hand(torch::nn::Sequential& net, int64_t batch_size) {
  torch::manual_seed(4);
  const auto loader = loader_of(64, batch_size);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
  torch::optim::StepLR schedule(optimizer, 1, 0.5);
  train(net, *loader, optimizer, schedule, [](const at::Tensor& loss) { loss.backward(); });
}

void train_prepared(torch::nn::Sequential& net, int64_t batch_size) {
  Accelerator accelerator({.cpu = true});
  torch::manual_seed(4);
  auto torch_loader = loader_of(64, batch_size);
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
  torch::optim::StepLR step_lr(adam, 1, 0.5);
  auto [model, loader, optimizer, schedule] = accelerator.prepare(net, torch_loader, adam, step_lr);
  train(model, loader, optimizer, schedule,
        [&](const at::Tensor& loss) { accelerator.backward(loss); });
}

TEST(TorchParts, TrainAsTheyDoByHand) {
  auto by_hand = sequential(), prepared = sequential();
  train_by_hand(by_hand, 16);
  train_prepared(prepared, 16);
  expect_close_weights(*by_hand, *prepared);
}

TEST(TorchParts, OfTwoProcessesTrainAsOfOne) {
  auto by_hand = sequential();
  train_by_hand(by_hand, 16);
  const auto words = run_world(2, [&](int64_t, const auto&) {
    auto prepared = sequential();
    train_prepared(prepared, 8);
    const auto mine = prepared->parameters(), theirs = by_hand->parameters();
    for (size_t i = 0; i < mine.size(); ++i) {
      if (!torch::allclose(mine[i], theirs[i], 1e-3, 1e-4)) {
        return "weight " + std::to_string(i) + " differs";
      }
    }
    return std::string();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(TorchParts, MayBeTemporariesAndPointers) {
  const auto trained = [](const auto& prepare) {
    Accelerator accelerator({.cpu = true});
    torch::manual_seed(4);
    auto net = sequential();
    auto [model, loader, optimizer] = prepare(accelerator, net);
    for (auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(
          torch::nn::functional::cross_entropy(model->forward(batch.data), batch.target));
      optimizer.step();
    }
    return net;
  };
  const torch::optim::AdamOptions options(0.01);
  const auto variables = [&](Accelerator& accelerator, auto& net) {
    static std::list<std::pair<decltype(loader_of(64, 16)), torch::optim::Adam>> kept;
    auto& [loader, adam] =
        kept.emplace_back(loader_of(64, 16), torch::optim::Adam(net->parameters(), options));
    return accelerator.prepare(net, loader, adam);
  };
  const auto wanted = trained(variables);
  const auto temporaries = trained([&](Accelerator& accelerator, auto& net) {
    return accelerator.prepare(net, loader_of(64, 16),
                               torch::optim::Adam(net->parameters(), options));
  });
  expect_close_weights(*temporaries, *wanted);
  const auto pointers = trained([&](Accelerator& accelerator, auto& net) {
    return accelerator.prepare(
        net, std::shared_ptr(loader_of(64, 16)),
        std::unique_ptr<torch::optim::Optimizer>(
            std::make_unique<torch::optim::Adam>(net->parameters(), options)));
  });
  expect_close_weights(*pointers, *wanted);
}

TEST(TorchParts, AScheduleMayBeATemporary) {
  Accelerator accelerator({.cpu = true});
  auto net = sequential();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.8));
  auto [model, optimizer, schedule] =
      accelerator.prepare(net, sgd, torch::optim::StepLR(sgd, 1, 0.5));
  for (int i = 0; i < 3; ++i) {
    accelerator.backward(model->forward(torch::ones({2, 6})).sum());
    optimizer.step();
    schedule.step();
  }
  EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 0.2);
}

TEST(TorchParts, AScheduleWaitsForAStepThatWasLeftOut) {
  Accelerator accelerator(
      {.mixed_precision = "fp16", .cpu = true, .engine = {.scaler = {.init_scale = 8.0}}});
  auto net = sequential();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.8));
  torch::optim::StepLR step_lr(sgd, 1, 0.5);
  auto [model, optimizer, schedule] = accelerator.prepare(net, sgd, step_lr);
  const auto rate_after = [&](double factor) {
    optimizer.zero_grad();
    accelerator.backward(model->forward(torch::ones({2, 6})).sum() * factor);
    optimizer.step();
    schedule.step();
    return sgd.param_groups()[0].options().get_lr();
  };
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(rate_after(1.0), 0.8);  // LibTorch's StepLR begins with a call that changes nothing
  EXPECT_EQ(rate_after(1.0), 0.4);
  EXPECT_EQ(rate_after(inf), 0.4);
  EXPECT_EQ(rate_after(1.0), 0.2);
}

TEST(TorchParts, GoOnFromASavedState) {
  const levin::test::Scratch scratch;
  const auto run = [&](bool resumes) {
    Accelerator accelerator({.cpu = true});
    auto net = sequential();
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
    auto [model, optimizer] = accelerator.prepare(net, adam);
    const auto step = [&] {
      optimizer.zero_grad();
      accelerator.backward(model->forward(torch::ones({2, 6})).square().sum());
      optimizer.step();
    };
    if (resumes) {
      accelerator.load_state(scratch / "state");
    } else {
      step();
      accelerator.save_state(scratch / "state");
    }
    step();
    return net->parameters()[0].detach().clone();
  };
  const at::Tensor whole = run(false);
  EXPECT_TRUE(torch::equal(run(true), whole));
}

/// The rates of 12 steps, where the run is saved after `saved_after` of them and goes on with a
/// schedule that is new.
template <class MakeSchedule, class Move>
std::vector<double> rates_of(int64_t saved_after, const MakeSchedule& make, const Move& move) {
  const levin::test::Scratch scratch;
  std::vector<double> rates;
  const auto run = [&](int64_t from, int64_t to) {
    Accelerator accelerator({.cpu = true});
    auto net = sequential();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.8));
    auto torch_schedule = make(sgd);
    auto [model, optimizer, schedule] = accelerator.prepare(net, sgd, torch_schedule);
    if (from > 0) accelerator.load_state(scratch / "state");
    for (int64_t i = from; i < to; ++i) {
      optimizer.zero_grad();
      accelerator.backward(model->forward(torch::ones({2, 6})).square().sum());
      optimizer.step();
      move(schedule, i);
      rates.push_back(sgd.param_groups()[0].options().get_lr());
    }
    accelerator.save_state(scratch / "state");
  };
  run(0, saved_after);
  run(saved_after, 12);
  return rates;
}

TEST(TorchParts, AScheduleGoesOnFromASavedState) {
  const auto expect_same = [](const auto& make, const auto& move) {
    const std::vector<double> straight = rates_of(12, make, move);
    EXPECT_LT(straight.back(), straight.front());
    for (const int64_t saved_after : {1, 2, 5, 8}) {
      EXPECT_EQ(rates_of(saved_after, make, move), straight) << "after " << saved_after;
    }
  };
  expect_same([](auto& sgd) { return torch::optim::StepLR(sgd, 3, 0.5); },
              [](auto& schedule, int64_t) { schedule.step(); });
  // A loss that falls, stays and falls again: what counts is the best so far and for how long.
  expect_same(
      [](auto& sgd) {
        return torch::optim::ReduceLROnPlateauScheduler(
            sgd, torch::optim::ReduceLROnPlateauScheduler::min, 0.5, /*patience=*/2,
            /*threshold=*/0.0, torch::optim::ReduceLROnPlateauScheduler::abs, /*cooldown=*/1);
      },
      [](auto& schedule, int64_t i) {
        schedule.step(i < 3 ? 3.0F - static_cast<float>(i) : 1.5F);
      });
}

/// A user's own, which remembers more than the count.
struct Halving : torch::optim::LRScheduler {
  using LRScheduler::LRScheduler;
  int64_t waited = 0;
  levin::State state_dict() const {
    levin::State state;
    return std::move(state.set("waited", waited));
  }
  void load_state_dict(const levin::State& state) { waited = state.integer("waited"); }

 private:
  std::vector<double> get_lrs() override {
    std::vector<double> rates = get_current_lrs();
    if (++waited % 4 == 0) {
      for (double& rate : rates) rate /= 2;
    }
    return rates;
  }
};

TEST(TorchParts, AScheduleOfOnesOwnSavesWhatItGives) {
  const auto make = [](auto& sgd) { return Halving(sgd); };
  const auto move = [](auto& schedule, int64_t) { schedule.step(); };
  EXPECT_EQ(rates_of(6, make, move), rates_of(12, make, move));
}

TEST(TorchParts, AnotherNumberOfSchedulesIsAnErrorThatNamesBoth) {
  Accelerator saved({.cpu = true}), loaded({.cpu = true});
  auto net = sequential();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.8));
  torch::optim::StepLR step_lr(sgd, 1, 0.5);
  loaded.prepare(step_lr);
  EXPECT_THAT(error_of([&] { loaded.load_state_dict(saved.state_dict()); }),
              StartsWith("accelerator.state: the checkpoint holds 0 schedules of torch::optim, but "
                         "1 are prepared"));
  torch::optim::ReduceLROnPlateauScheduler plateau(sgd);
  saved.prepare(plateau);
  EXPECT_THAT(error_of([&] { loaded.load_state_dict(saved.state_dict()); }),
              StartsWith("accelerator.state: the checkpoint holds a schedule of kind 'on plateau', "
                         "wanted 'by count'"));
}

TEST(TorchParts, ALoaderIsTakenByReferenceAndByPointer) {
  Accelerator accelerator({.cpu = true});
  const auto pointer = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Numbers(6).map(torch::data::transforms::Stack<>()), 4);
  auto& reference = *pointer;
  auto [by_pointer, by_reference] = accelerator.prepare(pointer, reference);
  const auto rows = [](auto& loader) {
    std::vector<at::Tensor> all;
    for (const auto& batch : loader) all.push_back(batch.data.clone());
    return torch::cat(all);
  };
  EXPECT_EQ(rows(by_pointer).size(0), 6);
  EXPECT_TRUE(torch::equal(rows(by_reference), rows(by_pointer)));
}

TEST(TorchParts, AnOptionThatALoaderDoesNotHeedIsAnError) {
  const auto error_with = [](const levin::AcceleratorOptions& options) {
    Accelerator accelerator(options);
    auto loader = loader_of(16, 4);
    return error_of([&] { accelerator.prepare(loader); });
  };
  EXPECT_THAT(error_with({.cpu = true, .dataloader_config = {.data_seed = 3}}),
              StartsWith("accelerator.torch_loader: got data_seed with a loader of torch::data"));
  EXPECT_EQ(error_with({.cpu = true, .dataloader_config = {.split_batches = true}}), "no error");
  EXPECT_THAT(
      run_world(2,
                [&](int64_t, const auto&) {
                  return error_with({.cpu = true, .dataloader_config = {.split_batches = true}});
                }),
      Each(StartsWith("accelerator.torch_loader: got split_batches with a loader")));
}

TEST(TorchParts, MasterWeightsThatAnOptimizerHasNotAreAnError) {
  Accelerator accelerator(
      {.mixed_precision = "bf16-true", .cpu = true, .engine = {.master_weights = true}});
  auto net = sequential();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_THAT(
      error_of([&] { accelerator.prepare(net, sgd); }),
      StartsWith("accelerator.optimizer: got master_weights with an optimizer of torch::optim"));
}

TEST(TorchParts, AnOptimizerOfOtherParametersIsAnError) {
  Accelerator accelerator({.cpu = true});
  auto prepared = sequential(), other = sequential();
  torch::optim::SGD sgd(other->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_THAT(error_of([&] { accelerator.prepare(prepared, sgd); }),
              StartsWith("optim.torch.parameters: parameter 0 (shape [16, 6]) of a torch::optim "
                         "optimizer belongs to no prepared module"));
}

TEST(TorchParts, AccumulateAndGatherToTheSample) {
  for (const int64_t size : {1, 2, 3}) {
    const auto words = run_world(size, [](int64_t, const auto&) {
      Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
      std::string wrong;
      for (const int64_t samples : {13, 16, 29}) {
        auto torch_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
            Numbers(samples).map(torch::data::transforms::Stack<>()), 4);
        auto [loader] = accelerator.prepare(torch_loader);
        std::vector<at::Tensor> all;
        bool synced = false;
        for (auto& batch : loader) {
          const auto scope = accelerator.accumulate();
          synced = accelerator.sync_gradients();
          all.push_back(accelerator.gather_for_metrics(batch.data));
        }
        if (!synced) wrong += " not synced at the end";
        const at::Tensor got = torch::cat(all);
        at::Tensor wanted = torch::empty({samples, 6});
        Numbers numbers(samples);
        for (int64_t i = 0; i < samples; ++i) wanted[i] = numbers.get(i).data;
        if (!got.sizes().equals(wanted.sizes()) || !torch::equal(got, wanted)) {
          wrong += " " + std::to_string(samples) + " gave " + c10::str(got.sizes());
        }
      }
      return wrong;
    });
    EXPECT_THAT(words, Each("")) << size;
  }
}

}  // namespace
