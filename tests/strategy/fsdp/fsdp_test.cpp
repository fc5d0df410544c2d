// What strategies fsdp and zero do beside the table: sizes within and outside of compute, and trainings
// that are those of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/strategy/strategies.h"
#include "tests/strategy/fsdp/trained.h"
#include "tests/support/world.h"

namespace {

using levin::State;
using levin::comm::ProcessGroup;
using levin::test::connect;
using levin::test::net_of_layers;
using levin::test::refusal_of;
using levin::test::run_world;
using levin::test::same;
using levin::test::some_inputs;
using levin::test::Trained;
using levin::test::trained_alone;
using ::testing::Each;

class Fsdp : public ::testing::TestWithParam<std::string> {};

TEST_P(Fsdp, ParametersAreRowsOutsideOfComputeAndWholeWithin) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    const auto weight = trained.net->ptr(0)->as<torch::nn::Linear>()->weight;
    int64_t rows = 0;
    for (const auto& parameter : trained.net->parameters()) rows += parameter.numel();
    int64_t all = 0;
    for (const auto& parameter : trained.net->parameters()) {
      const auto sizes = levin::shard::whole_sizes(parameter);
      all += c10::multiply_integers(sizes);
    }
    if (all != 6 * 8 + 8 + 8 * 8 + 8 + 8 * 4 + 4) return "whole sizes";
    if (std::abs(rows - all / 2) > 40) return "about a half: " + std::to_string(rows);
    {
      const auto scope = trained.strategy->compute_scope();
      if (weight.sizes() != at::IntArrayRef({8, 6})) return "whole within";
      const auto inner = trained.strategy->compute_scope();
    }
    if (weight.size(0) == 8 && rows == all) return "rows outside";
    trained.step(some_inputs(0));
    if (weight.grad().defined() && weight.grad().sizes() != weight.sizes()) return "rows of .grad";
    return same(levin::full(*trained.net), trained_alone(1), 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, AnExceptionWithinForwardLeavesTheNextStepRight) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    trained.step(some_inputs(0));
    const std::string error = refusal_of([&] { trained.forward(torch::randn({5, 7})); });
    if (error.empty()) return "no exception";
    trained.step(some_inputs(1));
    return same(levin::full(*trained.net), trained_alone(2), 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, AModuleMayBeUsedTwiceInOneForward) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    const auto loss_of = [](torch::nn::Sequential& net) {
      const at::Tensor x = some_inputs();
      const at::Tensor first = net->forward(x);
      return (net->forward(at::cat({first, first.narrow(1, 0, 2)}, 1)) + first).square().mean();
    };
    const auto train = [&](Trained trained) {
      for (int i = 0; i < 3; ++i) {
        trained.optimizer->zero_grad();
        at::Tensor loss;
        {
          const auto scope = trained.strategy->compute_scope();
          loss = loss_of(trained.net);
        }
        trained.strategy->backward(loss, true);
        trained.strategy->update(*trained.optimizer);
      }
      return levin::full(*trained.net);
    };
    const State together = train(Trained(connect(GetParam())));
    const State alone = train(Trained({}, net_of_layers(), {}, "single"));
    return same(together, alone, 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, ParametersMayBeFrozenAndUnfrozenInMidRun) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    const auto train = [&](Trained trained) {
      auto& middle = *trained.net->ptr(2);
      const auto freeze = [&](bool trains) {
        for (const auto& parameter : middle.parameters()) {
          at::Tensor(parameter).requires_grad_(trains);
        }
      };
      for (int i = 0; i < 6; ++i) {
        if (i == 1) freeze(false);
        if (i == 4) freeze(true);
        trained.step(some_inputs(i));
      }
      return levin::full(*trained.net);
    };
    const State together = train(Trained(connect(GetParam())));
    const State alone = train(Trained({}, net_of_layers(), {}, "single"));
    return same(together, alone, 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, AParameterThatNoRankUsesHasNoGradientAndOneThatOneRankUsesHas) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    at::Tensor loss;
    {
      const auto scope = trained.strategy->compute_scope();
      at::Tensor out = trained.net->ptr(0)->as<torch::nn::Linear>()->forward(some_inputs());
      out = trained.net->ptr(2)->as<torch::nn::Linear>()->forward(out);
      loss = rank == 0 ? out.mean() : out.detach().mean() + out.sum() * 0;
    }
    trained.strategy->backward(loss, true);
    for (const auto& parameter : trained.net->ptr(4)->parameters()) {
      if (parameter.grad().defined()) return "a gradient of what nobody uses";
    }
    for (const auto& parameter : trained.net->ptr(0)->parameters()) {
      if (!parameter.grad().defined()) return "none of what one rank uses";
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, GradientsAccumulateWithAndWithoutTheOtherRanks) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    const auto gradients = [&](Trained& trained, bool each, int64_t of_rank) {
      for (int64_t i = 0; i < 3; ++i) {
        const at::Tensor loss = trained.forward(some_inputs(10 * i + of_rank)).square().mean();
        trained.strategy->backward(loss, each || i == 2);
      }
    };
    const ProcessGroup group = connect(GetParam());
    Trained each(group), last(group);
    gradients(each, true, rank);
    gradients(last, false, rank);
    Trained first({}, net_of_layers(), {}, "single"), second({}, net_of_layers(), {}, "single");
    gradients(first, true, 0);
    gradients(second, true, 1);
    const auto wanted = [&](size_t i) {
      return (first.net->parameters()[i].grad() + second.net->parameters()[i].grad()) / 2;
    };
    for (size_t i = 0; i < 6; ++i) {
      for (Trained* trained : {&each, &last}) {
        const at::Tensor parameter = trained->net->parameters()[i];
        const at::Tensor rows = levin::shard::own_part(parameter, wanted(i));
        if (!parameter.grad().defined()) return "no gradient";
        if (!at::allclose(parameter.grad(), rows, 1e-5, 1e-7))
          return "gradient " + std::to_string(i);
      }
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}
TEST_P(Fsdp, WhatCodeWritesToRowsBetweenStepsIsSeenByAllRanks) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    const auto train = [&](Trained trained) {
      for (int i = 0; i < 4; ++i) {
        trained.step(some_inputs(i));
        const at::NoGradGuard no_grad;  // weight clipping, as in a WGAN
        for (const auto& parameter : trained.net->parameters()) {
          at::Tensor(parameter).clamp_(-0.2, 0.2);
        }
      }
      return levin::full(*trained.net);
    };
    const State together = train(Trained(connect(GetParam())));
    const State alone = train(Trained({}, net_of_layers(), {}, "single"));
    return same(together, alone, 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, AViewThatAModuleHasKeptShowsTheValuesOfTheTime) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    torch::nn::Sequential net = net_of_layers();
    const at::Tensor weight = net->ptr(0)->as<torch::nn::Linear>()->weight;
    const at::Tensor kept = weight.detach().t();
    Trained trained(connect(GetParam()), net);
    for (int i = 0; i < 3; ++i) trained.step(some_inputs(i));
    const auto scope = trained.strategy->compute_scope();
    const at::NoGradGuard no_grad;
    const at::Tensor by_view = at::mm(some_inputs(), kept);
    const at::Tensor by_weight = at::mm(some_inputs(), weight.t());
    return at::equal(by_view, by_weight) ? "" : "another value";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, AWholeScopeIsWholeAndWritesBack) {
  const auto words = run_world(3, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    trained.step(some_inputs());
    const State before = levin::full(*trained.net);
    const at::Tensor weight = trained.net->parameters().front();
    for (const bool write_back : {false, true}) {
      const levin::WholeScope whole(*trained.net, {.write_back = write_back});
      if (weight.sizes() != at::IntArrayRef({8, 6})) return "not whole";
      const at::NoGradGuard no_grad;
      for (const auto& parameter : trained.net->parameters()) at::Tensor(parameter).mul_(2);
    }
    const State after = levin::full(*trained.net);
    for (const auto& [name, value] : before.values()) {
      if (!at::equal(before.tensor(name) * 2, after.tensor(name))) return name;
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, AModelBuiltWithoutMemoryHasTheValuesOfOrdinaryConstruction) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    const State wanted = levin::module_state(*net_of_layers());
    torch::nn::Sequential net = levin::init_on_meta([] { return net_of_layers(); });
    Trained trained(connect(GetParam()), net);
    if (!same(levin::full(*net), wanted)) return "values";
    for (int i = 0; i < 2; ++i) trained.step(some_inputs(i));
    return same(levin::full(*net), trained_alone(2), 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}
TEST_P(Fsdp, ReleasesModulesWhole) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    torch::nn::Sequential net = net_of_layers();
    Trained trained(connect(GetParam()), net);
    for (int64_t i = 0; i < 2; ++i) trained.step(some_inputs(i));
    trained.strategy->release();
    if (levin::shard::layout_of(net->parameters().front()) != nullptr) return "still divided";
    if (!same(levin::module_state(*net), trained_alone(2), 1e-6)) return "weights";
    net->forward(some_inputs()).sum().backward();  // an ordinary module
    return net->parameters().front().grad().sizes() == at::IntArrayRef({8, 6}) ? "" : "gradient";
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Backends, Fsdp, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

}  // namespace
