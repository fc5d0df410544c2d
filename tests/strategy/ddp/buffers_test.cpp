// Buffers are rank 0's with each update, and no backward in between trips over them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "tests/support/world.h"

namespace ddp_buffers {
namespace {

using levin::test::run_world;
using ::testing::Each;
using Layers = torch::nn::Sequential;

struct Form {
  std::string backend = "shm";
  bool recordable = false;
};

std::vector<Form> forms() { return {{"shm"}, {"gloo"}, {"shm", true}, {"gloo", true}}; }

struct Ranks {
  std::unique_ptr<levin::Strategy> strategy;
  std::vector<std::unique_ptr<levin::optim::Optimizer>> optimizers;

  Ranks(const Form& form, const std::vector<std::shared_ptr<torch::nn::Module>>& modules)
      : strategy(levin::make_strategy(
            "ddp", {.group = levin::test::connect(form.backend), .recordable = form.recordable})) {
    for (const auto& module : modules) {
      strategy->setup(*module, at::kCPU);
      optimizers.push_back(strategy->build_optimizer(levin::optim::sgd({.lr = 0.1}),
                                                     levin::named_parameters(*module)));
    }
  }
  void backward(const at::Tensor& loss) { strategy->backward(loss, true); }
  void update(size_t i = 0) {
    strategy->update(*optimizers[i]);
    optimizers[i]->zero_grad();
  }
};

std::string differs(const at::Tensor& got, const at::Tensor& wanted) {
  return at::allclose(got, wanted) ? "" : c10::str("got ", got, ", wanted ", wanted);
}

at::Tensor rows(int64_t rank) { return torch::arange(12).view({4, 3}).to(at::kFloat) + 100 * rank; }

/// The words of all ranks in each form, so that one EXPECT says all.
std::vector<std::string> in_each_form(
    const std::function<std::string(const Form&, int64_t)>& body) {
  std::vector<std::string> all;
  for (const Form& form : forms()) {
    for (std::string& words :
         run_world(2, [&](int64_t rank, const auto&) { return body(form, rank); })) {
      if (!words.empty()) words += " (" + form.backend + (form.recordable ? ", recordable)" : ")");
      all.push_back(std::move(words));
    }
  }
  return all;
}

TEST(DdpBuffers, AreRankZerosAfterEachUpdate) {
  EXPECT_THAT(in_each_form([](const Form& form, int64_t rank) {
                Layers net(torch::nn::BatchNorm1d(3));
                Ranks ranks(form, {net.ptr()});
                ranks.backward(net->forward(rows(rank)).sum());
                ranks.update();
                return differs(net->named_buffers()["0.running_mean"],
                               torch::tensor({0.45, 0.55, 0.65}));
              }),
              Each(""));
}

TEST(DdpBuffers, AreRankZerosBeforeAnEvaluation) {
  EXPECT_THAT(in_each_form([](const Form& form, int64_t rank) {
                Layers net(torch::nn::BatchNorm1d(3));
                Ranks ranks(form, {net.ptr()});
                ranks.backward(net->forward(rows(0)).sum());
                ranks.update();
                net->forward(rows(rank));  // a batch whose step is left out
                ranks.strategy->agree_on_buffers();
                return differs(net->named_buffers()["0.running_mean"],
                               torch::tensor({0.855, 1.045, 1.235}));
              }),
              Each(""));
}

/// As of a loop that computes its updates itself.
TEST(DdpBuffers, AgreeWithoutUpdatesToo) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          Layers net(torch::nn::BatchNorm1d(3));
                          Ranks ranks({}, {net.ptr()});
                          for (int64_t step = 0; step < 2; ++step) {
                            ranks.backward(net->forward(rows(rank)).sum());
                          }
                          return differs(net->named_buffers()["0.running_mean"],
                                         torch::tensor({0.855, 1.045, 1.235}));
                        }),
              Each(""));
}

/// A buffer that the loss is computed with, and that the module itself writes with each forward.
struct ScaledImpl : torch::nn::Module {
  at::Tensor scale = register_buffer("scale", torch::ones({1}));
  at::Tensor weight = register_parameter("weight", torch::ones({3}));
  at::Tensor forward(const at::Tensor& x) {
    {
      const torch::NoGradGuard no_grad;
      scale.mul_(0.5).add_(x.mean(), 0.5);
    }
    return x * weight / scale;
  }
};
TORCH_MODULE(Scaled);

TEST(DdpBuffers, WhatALossIsComputedWithIsEachRanksOwnUntilTheUpdate) {
  EXPECT_THAT(in_each_form([](const Form& form, int64_t rank) {
                Scaled net;
                Ranks ranks(form, {net.ptr()});
                const double value = 1.0 + 2.0 * static_cast<double>(rank);
                ranks.backward(net->forward(torch::full({3}, value)).sum());
                // 1 / 1 on rank 0 and 3 / 2 on rank 1
                std::string words = differs(net->weight.grad(), torch::full({3}, 1.25));
                words += differs(net->scale, torch::full({1}, (1.0 + value) / 2));
                ranks.update();
                return words + differs(net->scale, torch::ones({1}));
              }),
              Each(""));
}

/// The discriminator's steps go while the generator's graph still waits for its backward.
TEST(DdpBuffers, OfTwoModulesWithOneGraphThatOutlivesAStep) {
  EXPECT_THAT(in_each_form([](const Form& form, int64_t rank) {
                torch::manual_seed(1);
                Layers generator(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3));
                Layers critic(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3));
                Ranks ranks(form, {generator.ptr(), critic.ptr()});
                for (int64_t step = 0; step < 3; ++step) {
                  const at::Tensor fake = generator->forward(rows(rank).sin());
                  const at::Tensor of_real = critic->forward(rows(rank));
                  const at::Tensor of_fake = critic->forward(fake.detach());
                  ranks.backward(of_real.square().mean());
                  ranks.backward(of_fake.square().mean());
                  ranks.update(1);
                  for (const at::Tensor& p : critic->parameters()) p.set_requires_grad(false);
                  ranks.backward(critic->forward(fake).square().mean());
                  for (const at::Tensor& p : critic->parameters()) p.set_requires_grad(true);
                  ranks.update(0);
                }
                // Of the critic too, which the last backward did not concern.
                auto group = levin::test::connect(form.backend);
                std::string words;
                for (const auto& net : {generator, critic}) {
                  for (const auto& item : net->named_buffers()) {
                    const at::Tensor first = item.value().clone();
                    group.broadcast(first, 0);
                    if (!at::equal(first, item.value())) words += item.key() + " differs; ";
                  }
                }
                return words;
              }),
              Each(""));
}

}  // namespace
}  // namespace ddp_buffers
