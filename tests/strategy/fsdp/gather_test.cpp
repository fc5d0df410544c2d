// Units that are gathered: what is sent, counted, and what differs between ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/autocast.h"
#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/strategy/strategies.h"
#include "tests/strategy/fsdp/gathered.h"
#include "tests/strategy/fsdp/trained.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::State;
using levin::test::connect;
using levin::test::error_of;
using levin::test::Gathered;
using levin::test::net_of_layers;
using levin::test::run_world;
using levin::test::same;
using levin::test::some_inputs;
using levin::test::Trained;
using levin::test::trained_alone;
using ::testing::Each;

TEST(FsdpGathered, RefusesRanksThatRunOutOfData) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect("gloo"));
    auto& joinable = dynamic_cast<levin::Joinable&>(*trained.strategy);
    const std::string error = error_of([&] { joinable.begin_join(true); });
    return error.find("strategy.fsdp.join") != std::string::npos ? "" : error;
  });
  EXPECT_THAT(words, Each(""));
}

torch::nn::Sequential equal_layers(int64_t count) {
  torch::manual_seed(5);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < count; ++i) net->push_back(torch::nn::Linear(16, 16));
  levin::wrap_all(*net);
  return net;
}

// A unit once in forward, and in backward but for the last ones, which are still there, and the first
// layer's, whose weight is in no gradient of another one.
TEST(FsdpGathered, SendsEachUnitOnceAPassAndKeepsToItsMemory) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    torch::nn::Sequential net = equal_layers(8);
    Gathered gathered(connect("gloo"), *net);
    const auto& cache = gathered.gather.cache();
    for (int64_t step = 1; step <= 3; ++step) {
      gathered.pass([&] { return net->forward(torch::randn({2, 16})).square().mean(); });
      if (gathered.forward_gathers != step * 8 + (step - 1) * 4) return "gathers of forward";
      const int64_t gathers = cache.num_gathers() - step * 8;
      if (gathers != step * 4) return "gathers of backward: " + std::to_string(gathers);
    }
    const int64_t most = 3 * gathered.units.front()->bytes();
    return cache.most_bytes() <= most ? "" : "memory: " + std::to_string(cache.most_bytes());
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpGathered, NothingIsSentInVainInBackwardWhereTheOrderOfLayersChangesFromStepToStep) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    const torch::nn::Sequential net = equal_layers(8);
    Gathered gathered(connect("gloo"), *net);
    const auto& cache = gathered.gather.cache();
    int64_t before = 0;
    for (int64_t step = 0; step < 6; ++step) {
      const at::Tensor order =
          at::randperm(8, at::make_generator<at::CPUGeneratorImpl>(uint64_t(step)));
      gathered.pass([&] {
        at::Tensor x = torch::ones({2, 16});
        for (int64_t i = 0; i < 8 - step / 3; ++i) {  // and not all of them each time
          x = net->ptr(static_cast<size_t>(order[i].item<int64_t>()))
                  ->as<torch::nn::Linear>()
                  ->forward(x);
        }
        return x.square().mean();
      });
      const int64_t of_backward = cache.num_gathers() - gathered.forward_gathers;
      if (of_backward < 3) return "nothing gathered in backward";
      if (gathered.forward_gathers == before) return "nothing gathered in forward";
      before = cache.num_gathers();
      if (cache.num_in_vain() > 0) return "in vain in step " + std::to_string(step);
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

struct NormedLayers : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::LayerNorm norm{nullptr};

  NormedLayers() {
    torch::manual_seed(6);
    first = register_module("first", torch::nn::Linear(32, 48));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({48})));
    second = register_module("second", torch::nn::Linear(48, 33));
  }
  at::Tensor loss(const at::Tensor& x) {
    const levin::AutocastScope autocast(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
    return second->forward(norm->forward(first->forward(x))).to(at::kFloat).square().mean();
  }
};

// Products' weights and biases travel as bf16, those of the norm as they are; the numbers are those of
// one process.
TEST(FsdpGathered, WhatAutocastCastsIsSentInTheTypeThatItCastsTo) {
  for (const int64_t ranks : {2, 3}) {
    const auto words = run_world(ranks, [&](int64_t, const auto&) -> std::string {
      const auto net = std::make_shared<NormedLayers>(), alone = std::make_shared<NormedLayers>();
      Gathered gathered(connect("gloo"), *net);
      const auto& cache = gathered.gather.cache();
      const at::Tensor x =
          torch::randn({5, 32}, at::make_generator<at::CPUGeneratorImpl>(uint64_t(4)));
      int64_t in_float = 0, before = 0;
      for (int64_t step = 0; step < 4; ++step) {
        const at::Tensor got = gathered.pass([&] { return net->loss(x); });
        alone->zero_grad();
        const at::Tensor wanted = alone->loss(x);
        wanted.backward();
        if (!at::equal(got, wanted.detach())) return "loss of step " + std::to_string(step);
        const auto theirs = alone->parameters();
        size_t i = 0;
        for (const auto& parameter : gathered.units.front()->parameters()) {
          // Gradients of the whole: nothing has divided them here.
          const at::Tensor gradient = parameter->leaf().grad();
          if (!at::equal(gradient, theirs[i++].grad())) return "gradient of " + parameter->name();
          parameter->leaf().mutable_grad().reset();
        }
        const int64_t bytes = cache.num_bytes() - before;
        before = cache.num_bytes();
        if (step == 0) in_float = bytes;
        const double share = static_cast<double>(bytes) / static_cast<double>(in_float);
        if (step > 0 && (share < 0.49 || share > 0.54)) return "sent " + std::to_string(share);
      }
      return "";
    });
    EXPECT_THAT(words, Each("")) << ranks;
  }
}

// Autocast in the forward of one block is the precision of its unit alone.
TEST(FsdpGathered, AUnitUnderAutocastIsSentInItsTypeAndOthersAreNot) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    torch::nn::Sequential net = equal_layers(2);
    Gathered gathered(connect("gloo"), *net);
    const auto& cache = gathered.gather.cache();
    const int64_t unit = gathered.units.front()->bytes();
    int64_t before = 0, sent = 0;
    for (int64_t step = 0; step < 3; ++step) {
      const at::Tensor loss = gathered.pass([&] {
        const at::Tensor x = torch::ones({2, 16});
        const at::Tensor first = net->ptr(0)->as<torch::nn::Linear>()->forward(x);
        const levin::AutocastScope autocast(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
        return net->ptr(1)->as<torch::nn::Linear>()->forward(first).to(at::kFloat).mean();
      });
      sent = cache.num_bytes() - before;
      before = cache.num_bytes();
    }
    return sent == unit + unit / 2 ? "" : std::to_string(sent);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpGathered, ACastOfTheUsersOwnMayBeWrittenTo) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    const auto net = std::make_shared<NormedLayers>();
    Gathered gathered(connect("gloo"), *net);
    const at::Tensor x = torch::ones({2, 32});
    for (int64_t step = 0; step < 3; ++step) {
      at::Tensor before, after;
      gathered.pass([&] {
        const at::Tensor loss = net->loss(x);
        const at::NoGradGuard no_grad;
        const levin::AutocastScope autocast(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
        before = net->first->weight.to(at::kBFloat16);
        before.mul_(2);
        after = net->first->weight.to(at::kBFloat16);
        return loss;
      });
      if (!at::equal(before, after * 2)) return "not a copy";
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}
TEST(FsdpGathered, RanksThatTouchDifferentUnitsFailTogether) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    torch::nn::Sequential net;
    for (int i = 0; i < 3; ++i) net->push_back(torch::nn::Linear(6, 6));
    levin::wrap_all(*net);
    Trained trained(connect("gloo"), net);
    const auto scope = trained.strategy->compute_scope();
    auto* layer = net->ptr(rank == 0 ? 0 : 1)->as<torch::nn::Linear>();
    const std::string error = error_of([&] { layer->forward(some_inputs()); });
    return error.find("comm.mismatch") != std::string::npos &&
                   error.find("for unit 0 (parameters 0.weight, 0.bias)") != std::string::npos &&
                   error.find("for unit 1 (parameters 1.weight, 1.bias)") != std::string::npos
               ? ""
               : error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpGathered, AUnitThatOneRankAloneUsesIsNamedOnBoth) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    torch::nn::Sequential net;
    for (int i = 0; i < 2; ++i) net->push_back(torch::nn::Linear(6, 6));
    levin::wrap_all(*net);
    Trained trained(connect("gloo"), net);
    const std::string error = error_of([&] {
      at::Tensor loss;
      {
        const auto scope = trained.strategy->compute_scope();
        at::Tensor out = net->ptr(0)->as<torch::nn::Linear>()->forward(some_inputs());
        if (rank == 1) out = net->ptr(1)->as<torch::nn::Linear>()->forward(out);
        loss = out.square().mean();
      }
      trained.strategy->backward(loss, /*synchronize=*/true);
    });
    return error.find("comm.mismatch") != std::string::npos &&
                   error.find("for unit 1 (parameters 1.weight, 1.bias)") != std::string::npos
               ? ""
               : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpGathered, RanksMayHaveDifferentNumbersOfEvaluationBatches) {
  const auto words = run_world(3, [&](int64_t rank, const auto&) -> std::string {
    torch::nn::Sequential net = net_of_layers();
    levin::wrap_all(*net);
    Trained trained(connect("gloo"), net);
    trained.step(some_inputs(0));
    const State wanted = trained_alone(1);
    {
      const at::NoGradGuard no_grad;
      for (int64_t i = 0; i < rank; ++i) {
        if (trained.forward(some_inputs(i)).numel() != 20) return "outputs";
      }
    }
    trained.strategy->end_evaluation();
    trained.step(some_inputs(1));
    return same(levin::full(*trained.net), trained_alone(2), 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
