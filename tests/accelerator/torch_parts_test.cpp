// Optimizers, schedules and loaders of LibTorch, which prepare takes as they are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

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

TEST(TorchParts, AScheduleWaitsForAStepThatWasLeftOut) {
  Accelerator accelerator({.mixed_precision = "fp16", .cpu = true, .scaler = {.init_scale = 8.0}});
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

TEST(TorchParts, AnOptimizerOfOtherParametersIsAnError) {
  Accelerator accelerator({.cpu = true});
  auto prepared = sequential(), other = sequential();
  torch::optim::SGD sgd(other->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_THAT(error_of([&] { accelerator.prepare(prepared, sgd); }),
              StartsWith("optim.torch.parameters: parameter 0 of an optimizer of torch::optim, of "
                         "shape [16, 6], belongs to no prepared module"));
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
