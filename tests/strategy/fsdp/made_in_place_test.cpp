// Gradients that backward makes where the other ranks read them equal, to the bit, those that are
// copied there, whatever else is made in that memory and whoever keeps it.
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "levin/base/memory/host_allocator.h"
#include "levin/module/parameters.h"
#include "tests/strategy/fsdp/trained.h"
#include "tests/support/world.h"

namespace {

using levin::State;
using levin::comm::ProcessGroup;
using levin::test::connect;
using levin::test::run_world;
using levin::test::same;
using levin::test::Trained;
using ::testing::Each;

constexpr int64_t kWidth = 256;  // a weight of the smallest size that is made in place
constexpr int64_t kLayers = 4;
constexpr int64_t kSteps = 5;

torch::nn::Sequential large_net() {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
  return net;
}

at::Tensor large_inputs(int64_t rank, int64_t step, int64_t rows = 8) {
  return torch::randn({rows, kWidth}, at::make_generator<at::CPUGeneratorImpl>(
                                          static_cast<uint64_t>(9 * step + rank)));
}

torch::nn::Linear& layer(const Trained& trained, int64_t i) {
  static std::vector<torch::nn::Linear> layers;
  layers.clear();
  for (const auto& child : trained.net->children()) {
    layers.emplace_back(std::dynamic_pointer_cast<torch::nn::LinearImpl>(child));
  }
  return layers.at(static_cast<size_t>(i));
}

/// Copies of at least a weight's size, during its time, in this thread.
class LargeCopies {
 public:
  LargeCopies() {
    count() = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& call) {
          const bool is_copy = std::string_view(call.name()) == "aten::copy_";
          if (is_copy && call.inputs()[0].toTensor().numel() >= kWidth * kWidth) ++count();
          return std::unique_ptr<at::ObserverContext>();
        })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~LargeCopies() { at::removeCallback(handle_); }
  static int64_t& count() {
    static int64_t copies = 0;
    return copies;
  }

 private:
  at::CallbackHandle handle_ = 0;
};

struct Case {
  std::string name;
  /// A step of one rank.
  std::function<void(Trained& trained, int64_t rank, int64_t step)> run;
  /// Large copies of the last step; -1: any number.
  int64_t copies = -1;
};

void ordinary_step(Trained& trained, int64_t rank, int64_t step) {
  trained.step(large_inputs(rank, step));
}

/// Activations are as large as weights, and so are their gradients.
void step_among_others_of_that_size(Trained& trained, int64_t rank, int64_t step) {
  trained.optimizer->zero_grad();
  at::Tensor x = large_inputs(rank, step, kWidth).requires_grad_();
  for (int64_t i = 0; i < kLayers; ++i) x = x + x.relu() * 0.5;
  const at::Tensor out = trained.forward(x);
  trained.strategy->backward((out * out.sigmoid()).mean(), true);
  trained.strategy->update(*trained.optimizer);
}

/// Layers run in another order from step to step.
void step_in_another_order(Trained& trained, int64_t rank, int64_t step) {
  trained.optimizer->zero_grad();
  at::Tensor x = large_inputs(rank, step);
  {
    const auto whole = trained.strategy->compute_scope();
    for (int64_t i = 0; i < kLayers; ++i) x = layer(trained, (i * 3 + step) % kLayers)->forward(x);
  }
  trained.strategy->backward(x.square().mean(), true);
  trained.strategy->update(*trained.optimizer);
}

/// A layer has no gradient at times.
void step_without(const std::function<bool(int64_t layer)>& is_left_out, Trained& trained,
                  int64_t rank, int64_t step) {
  trained.optimizer->zero_grad();
  at::Tensor x = large_inputs(rank, step);
  {
    const auto whole = trained.strategy->compute_scope();
    for (int64_t i = 0; i < kLayers; ++i) {
      if (!is_left_out(i)) x = layer(trained, i)->forward(x);
    }
  }
  trained.strategy->backward(x.square().mean(), true);
  trained.strategy->update(*trained.optimizer);
}

void step_without_some(Trained& trained, int64_t rank, int64_t step) {
  step_without([&](int64_t i) { return i == step % kLayers; }, trained, rank, step);
}

void step_without_some_of_a_rank(Trained& trained, int64_t rank, int64_t step) {
  step_without([&](int64_t i) { return i == 1 && step % 2 == rank; }, trained, rank, step);
}

void step_of_a_group_of_batches(Trained& trained, int64_t rank, int64_t step) {
  if (step % 2 == 0) trained.optimizer->zero_grad();
  const at::Tensor loss = trained.forward(large_inputs(rank, step)).square().mean();
  trained.strategy->backward(loss, step % 2 == 1);
  if (step % 2 == 1) trained.strategy->update(*trained.optimizer);
}

void step_that_adds_to_the_one_before(Trained& trained, int64_t rank, int64_t step) {
  if (step % 2 == 0) trained.optimizer->zero_grad();
  const at::Tensor loss = trained.forward(large_inputs(rank, step)).square().mean();
  trained.strategy->backward(loss, true);
  if (step % 2 == 1) trained.strategy->update(*trained.optimizer);
}

void step_that_uses_a_layer_twice(Trained& trained, int64_t rank, int64_t step) {
  trained.optimizer->zero_grad();
  at::Tensor x = large_inputs(rank, step);
  {
    const auto whole = trained.strategy->compute_scope();
    for (const int64_t i : {0, 1, 2, 1, 3}) x = layer(trained, i)->forward(x);
  }
  trained.strategy->backward(x.square().mean(), true);
  trained.strategy->update(*trained.optimizer);
}

void step_with_a_frozen_layer(Trained& trained, int64_t rank, int64_t step) {
  for (const auto& parameter : layer(trained, 1)->parameters()) {
    at::Tensor(parameter).requires_grad_(step != 2 && step != 3);
  }
  ordinary_step(trained, rank, step);
}

/// One layer more trains in each step, so that there are more, or larger, units to be sent.
void step_with_a_layer_more(Trained& trained, int64_t rank, int64_t step) {
  for (int64_t i = 0; i < kLayers; ++i) {
    for (const auto& parameter : layer(trained, i)->parameters()) {
      at::Tensor(parameter).requires_grad_(i >= kLayers - 1 - step);
    }
  }
  ordinary_step(trained, rank, step);
}

/// After a backward that threw with some gradients on their way.
void step_after_an_exception(Trained& trained, int64_t rank, int64_t step) {
  if (step == 3) {
    trained.optimizer->zero_grad();
    at::Tensor x = large_inputs(rank, step);
    {
      const auto whole = trained.strategy->compute_scope();
      x = layer(trained, 1)->forward(layer(trained, 0)->forward(x));
      x.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("thrown"); });
      x = layer(trained, 3)->forward(layer(trained, 2)->forward(x));
    }
    EXPECT_THROW(trained.strategy->backward(x.square().mean(), true), std::runtime_error);
  }
  ordinary_step(trained, rank, step);
}

const Case& case_of(const std::string& name) {
  static const std::vector<Case> cases = {{"Ordinary", ordinary_step, 0},
                                          {"AmongOthersOfThatSize", step_among_others_of_that_size},
                                          {"AnotherOrder", step_in_another_order},
                                          {"WithoutSome", step_without_some},
                                          {"WithoutSomeOfARank", step_without_some_of_a_rank},
                                          {"GroupOfBatches", step_of_a_group_of_batches},
                                          {"AddsToTheOneBefore", step_that_adds_to_the_one_before},
                                          {"ALayerTwice", step_that_uses_a_layer_twice},
                                          {"AFrozenLayer", step_with_a_frozen_layer},
                                          {"ALayerMore", step_with_a_layer_more},
                                          {"AfterAnException", step_after_an_exception}};
  for (const Case& each : cases) {
    if (each.name == name) return each;
  }
  throw std::out_of_range(name);
}

constexpr double kALayer = 0.25;  // MB

/// The weights after some steps, and the large copies of the last.
std::pair<State, int64_t> trained_by(const Case& each, const ProcessGroup& group, int64_t rank,
                                     double unit_mb, bool in_place) {
  in_place ? levin::detail::use_host_allocator() : levin::detail::use_no_host_allocator();
  Trained trained(group, large_net(), {.unit_mb = unit_mb});
  for (int64_t step = 0; step + 1 < kSteps; ++step) each.run(trained, rank, step);
  const LargeCopies copies;
  each.run(trained, rank, kSteps - 1);
  const int64_t count = LargeCopies::count();
  return {levin::full(*trained.net), count};
}

using Parameters = std::tuple<std::string, double, std::string>;
class MadeInPlace : public ::testing::TestWithParam<Parameters> {};

std::string name_of(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& [backend, unit_mb, name] = info.param;
  return backend + (unit_mb == kALayer ? "UnitsOfALayer" : "OneUnit") + name;
}

TEST_P(MadeInPlace, EqualsCopiedThere) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    const auto& [backend, unit_mb, name] = GetParam();
    const Case& each = case_of(name);
    const ProcessGroup group = connect(backend);
    const auto [copied, num_copied] = trained_by(each, group, rank, unit_mb, /*in_place=*/false);
    const auto [made, num_made] = trained_by(each, group, rank, unit_mb, /*in_place=*/true);
    if (!same(copied, made)) return "weights";
    if (each.copies >= 0 && (num_made != each.copies || num_copied < num_made + kLayers)) {
      return fmt::format("{} large copies, and {} with memory of its own", num_made, num_copied);
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    All, MadeInPlace,
    ::testing::Combine(::testing::Values("shm", "gloo"), ::testing::Values(kALayer, 100),
                       ::testing::Values("Ordinary", "AmongOthersOfThatSize", "AnotherOrder",
                                         "WithoutSome", "GroupOfBatches", "AddsToTheOneBefore",
                                         "ALayerTwice", "AFrozenLayer", "ALayerMore",
                                         "AfterAnException")),
    name_of);

// Over gloo ranks that use other units than their peers are an error.
INSTANTIATE_TEST_SUITE_P(Shared, MadeInPlace,
                         ::testing::Combine(::testing::Values("shm"),
                                            ::testing::Values(kALayer, 100),
                                            ::testing::Values("WithoutSomeOfARank")),
                         name_of);

/// Somebody who keeps a gradient of this rank has what it was, for as long as he likes.
TEST(MadeInPlace, AGradientThatSomebodyKeepsStaysWhatItWas) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    levin::detail::use_host_allocator();
    const ProcessGroup group = connect("shm");
    std::vector<at::Tensor> kept, copies;
    std::vector<bool> is_kept = {false, false, true, true, false};
    const auto train = [&](bool keeps) {
      Trained trained(group, large_net(), {.unit_mb = kALayer});
      int64_t now = 0;
      {
        const auto whole = trained.strategy->compute_scope();
        for (int64_t i = 0; i < kLayers; ++i) {
          layer(trained, i)->weight.register_hook([&](const at::Tensor& gradient) {
            if (!keeps || !is_kept[static_cast<size_t>(now)]) return;
            kept.push_back(gradient);
            copies.push_back(gradient.clone());
          });
        }
      }
      for (; now < kSteps; ++now) ordinary_step(trained, rank, now);
      return levin::full(*trained.net);
    };
    const State with = train(true), without = train(false);
    if (!same(with, without)) return "weights";
    if (kept.size() != 2 * kLayers) return "kept " + std::to_string(kept.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      if (!at::equal(kept[i], copies[i])) return "changed: " + std::to_string(i);
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
