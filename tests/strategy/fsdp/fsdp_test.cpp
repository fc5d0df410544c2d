// What strategies fsdp and zero do beside the table: sizes within and outside of compute, errors that
// say what is wrong, memory and messages counted.
#include "levin/strategy/fsdp/fsdp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/full.h"
#include "levin/module/wrap.h"
#include "levin/optim/optim.h"
#include "levin/shard/leaf.h"
#include "levin/strategy/fsdp/first_touch.h"
#include "levin/strategy/fsdp/plan_units.h"
#include "tests/strategy/tasks.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::State;
using levin::Strategy;
using levin::comm::ProcessGroup;
using levin::test::connect;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;

torch::nn::Sequential net_of_layers() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::ReLU(), torch::nn::Linear(8, 8),
                               torch::nn::ReLU(), torch::nn::Linear(8, 4));
}

/// A module under fsdp with one optimizer.
struct Trained {
  explicit Trained(const ProcessGroup& group, torch::nn::Sequential module = net_of_layers(),
                   levin::FsdpOptions options = {}, std::string_view name = "fsdp")
      : net(std::move(module)),
        strategy(levin::make_strategy(name, {.group = group, .fsdp = options})) {
    strategy->setup(*net, at::kCPU);
    optimizer =
        strategy->build_optimizer(levin::optim::sgd({.lr = 0.1}), levin::named_parameters(*net));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto whole = strategy->compute_scope();
    return net->forward(x);
  }
  void step(const at::Tensor& x) {
    optimizer->zero_grad();
    strategy->backward(forward(x).square().mean(), /*synchronize=*/true);
    strategy->update(*optimizer);
  }

  torch::nn::Sequential net;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<levin::optim::Optimizer> optimizer;
};

at::Tensor some_inputs(int64_t seed = 1) {
  return torch::randn({5, 6},
                      at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed)));
}

bool same(const State& one, const State& other, double tolerance = 0) {
  for (const auto& [name, value] : one.values()) {
    if (!at::allclose(one.tensor(name), other.tensor(name), 0, tolerance)) return false;
  }
  return one.values().size() == other.values().size();
}

/// A state of module of one process after these steps.
State trained_alone(int64_t steps) {
  Trained alone({}, net_of_layers(), {}, "single");
  for (int64_t i = 0; i < steps; ++i) alone.step(some_inputs(i));
  return levin::full(*alone.net);
}

/// What LibTorch says of a call that it refuses.
template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

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

TEST_P(Fsdp, AParameterInAGraphOutsideOfForwardIsAnErrorThatNamesIt) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    // Each rank has one row of the weight: LibTorch would sum the whole gradient without a word.
    Trained trained(
        connect(GetParam()),
        torch::nn::Sequential(torch::nn::Linear(torch::nn::LinearOptions(6, 2).bias(false))));
    trained.step(some_inputs());
    const at::Tensor weight = trained.net->parameters().front();
    if (weight.size(0) != 1) return "not one row";
    const at::Tensor out = trained.forward(some_inputs());
    std::string error;
    {
      const at::Tensor penalty = weight.square().sum();
      error = error_of([&] { trained.strategy->backward(out.mean() + penalty, true); });
    }
    if (error.find("strategy.fsdp.outside: 0.weight of unit") == std::string::npos) return error;
    if (error.find("rank " + std::to_string(rank)) == std::string::npos &&
        error.find("1 rows of this rank") == std::string::npos)
      return error;
    {
      const at::Tensor gone = weight.square().sum();
    }
    const at::Tensor value = weight.detach().square().sum();
    trained.step(some_inputs());
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, AWriteToAParameterWithinForwardIsAnErrorThatNamesIt) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    const auto scope = trained.strategy->compute_scope();
    const at::NoGradGuard no_grad;
    const std::string error =
        error_of([&] { trained.net->ptr(2)->as<torch::nn::Linear>()->weight.mul_(0.5); });
    return error.find("strategy.fsdp.write: aten::mul_") != std::string::npos &&
                   error.find("2.weight") != std::string::npos
               ? ""
               : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, AStepBetweenForwardAndBackwardIsAnError) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    trained.step(some_inputs());
    const at::Tensor loss = trained.forward(some_inputs()).square().mean();
    trained.step(some_inputs(2));
    const std::string error = refusal_of([&] { trained.strategy->backward(loss, false); });
    return error.find("modified by an inplace operation") != std::string::npos ? ""
                                                                               : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, AParameterThatIsReplacedByOneOfOtherSizesIsAnError) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    trained.step(some_inputs());
    trained.net->parameters().front().set_data(torch::ones({9, 6}));
    const std::string error = error_of([&] { trained.step(some_inputs()); });
    return error.find("strategy.fsdp.replaced: 0.weight") != std::string::npos ? ""
                                                                               : "got " + error;
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

TEST_P(Fsdp, AGradientThatIsChangedBetweenBatchesOfAGroupIsAnError) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    trained.strategy->backward(trained.forward(some_inputs()).mean(), /*synchronize=*/false);
    for (const auto& parameter : trained.net->parameters()) parameter.mutable_grad().mul_(2);
    const std::string error = error_of([&] {
      trained.strategy->backward(trained.forward(some_inputs()).mean(), /*synchronize=*/true);
    });
    return error.find("strategy.fsdp.gradients") != std::string::npos &&
                   error.find("sync_each_batch") != std::string::npos
               ? ""
               : error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(Fsdp, ASecondGradientOfOneBackwardIsAnErrorWhereTheFirstWasSent) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    torch::nn::Sequential net = net_of_layers();
    levin::wrap_all(*net);
    Trained trained(connect(GetParam()), net);
    const auto last = net->ptr(4)->as<torch::nn::Linear>()->weight;
    at::Tensor loss;
    {
      const auto scope = trained.strategy->compute_scope();
      const at::Tensor hidden = net->ptr(0)->as<torch::nn::Linear>()->forward(some_inputs());
      hidden.register_hook([last](const at::Tensor& gradient) {
        const at::AutoGradMode with_grad(true);
        last.square().sum().backward();
        return gradient;
      });
      loss = net->ptr(4)->as<torch::nn::Linear>()->forward(hidden).square().mean();
    }
    const std::string error = error_of([&] { trained.strategy->backward(loss, true); });
    return error.find("strategy.fsdp.twice") != std::string::npos ? "" : error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpGathered, RefusesRanksThatRunOutOfData) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect("gloo"));
    auto& joinable = dynamic_cast<levin::Joinable&>(*trained.strategy);
    const std::string error = error_of([&] { joinable.begin_join(true); });
    return error.find("strategy.fsdp.join") != std::string::npos ? "" : error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpShared, TakesRanksThatRunOutOfData) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    Trained trained(connect("shm"));
    auto& joinable = dynamic_cast<levin::Joinable&>(*trained.strategy);
    joinable.begin_join(/*by_present=*/true);
    for (int64_t i = 0; i < (rank == 0 ? 3 : 1); ++i) trained.step(some_inputs(i));
    trained.optimizer->zero_grad();
    while (joinable.shadow_step()) {
      trained.strategy->update(*trained.optimizer);
      trained.optimizer->zero_grad();
    }
    return same(levin::full(*trained.net), trained_alone(3), 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpShared, RefusesTwoParametersInOneMemory) {
  struct Net : torch::nn::Module {
    Net() {
      const at::Tensor memory = torch::ones({6, 4});
      register_parameter("first", memory.narrow(0, 0, 4));
      register_parameter("second", memory.narrow(0, 2, 4));
    }
  };
  const auto strategy = levin::make_strategy("fsdp", {});
  const auto net = std::make_shared<Net>();
  EXPECT_THAT(error_of([&] { strategy->setup(*net, at::kCPU); }),
              HasSubstr("strategy.fsdp.shared_memory: first and second"));
}

// What is gathered is counted: a unit once in forward, and in backward but for the last ones, which
// are still there.
TEST(FsdpGathered, SendsEachUnitOnceAPassAndKeepsToItsMemory) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    const ProcessGroup group = connect("gloo");
    torch::nn::Sequential net;
    for (int i = 0; i < 8; ++i) net->push_back(torch::nn::Linear(16, 16));
    levin::wrap_all(*net);
    const levin::comm::DeviceMesh mesh(group, {{"dp", 2}});
    std::vector<std::unique_ptr<levin::fsdp::Unit>> units;
    levin::fsdp::FirstTouch touch(group, nullptr, {});
    for (const auto& plan : levin::fsdp::plan_units(*net, 1).units) {
      units.push_back(std::make_unique<levin::fsdp::Unit>(plan.name, plan.parameters, mesh,
                                                          levin::fsdp::UnitOptions{}));
      units.back()->place(at::kCPU);
      touch.add(*units.back());
    }
    const int64_t unit_bytes = units.front()->bytes();
    for (int64_t step = 1; step <= 3; ++step) {
      for (const auto& unit : units) unit->enter();
      {
        const levin::graph::HandlerScope scope(touch);
        touch.begin(levin::fsdp::FirstTouch::Pass::kForward);
        const at::Tensor loss = net->forward(torch::randn({2, 16})).square().mean();
        if (touch.num_gathers() != step * 8 + (step - 1) * 4) return "gathers of forward";
        touch.begin(levin::fsdp::FirstTouch::Pass::kBackward);
        loss.backward();
      }
      for (const auto& unit : units) unit->leave();
      for (const auto& parameter : net->parameters()) parameter.mutable_grad().reset();
      // The first layer's weight is in no gradient of another one.
      const int64_t gathers = touch.num_gathers() - step * 8;
      if (gathers != step * 4) return "gathers of backward: " + std::to_string(gathers);
      touch.drop();
    }
    return touch.most_bytes() <= 3 * unit_bytes ? ""
                                                : "memory: " + std::to_string(touch.most_bytes());
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
    return error.find("comm.mismatch") != std::string::npos ? "" : error;
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

/// Of the mapping that an address is in: its rights, and the kilobytes in it that no other process has
/// mapped.
std::pair<std::string, int64_t> mapping_of(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  std::pair<std::string, int64_t> found;
  bool within = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream range(line), field(line);
    uintptr_t begin = 0, end = 0;
    char dash = ' ';
    std::string rights, name;
    int64_t kilobytes = 0;
    if (range >> std::hex >> begin >> dash >> end >> rights && dash == '-') {
      within = begin <= wanted && wanted < end;
      if (within) found.first = rights;
    } else if (within && field >> name >> kilobytes && name.starts_with("Private_")) {
      found.second += kilobytes;
    }
  }
  return found;
}

TEST(FsdpShared, OneMemoryIsThatOfAllRanks) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    ProcessGroup group = connect("shm");
    Trained trained(group, torch::nn::Sequential(torch::nn::Linear(512, 512)));
    for (int i = 0; i < 2; ++i) trained.step(torch::randn({4, 512}));
    const at::Tensor weight = trained.net->parameters().front();
    std::pair<std::string, int64_t> mapping;
    {
      const auto scope = trained.strategy->compute_scope();
      group.barrier();
      mapping = mapping_of(weight.const_data_ptr());
      group.barrier();
    }
    if (mapping.first != "r--s") return "mapped as " + mapping.first;
    return mapping.second < 64 ? "" : std::to_string(mapping.second) + " of 1024 kB are private";
  });
  EXPECT_THAT(words, Each(""));
}

// Later passes pay nothing to see writes; the kernel does.
TEST(FsdpSharedDeathTest, ALaterWriteEndsTheProcessWithWordsThatNameTheParameter) {
  Trained trained({}, net_of_layers());
  for (int64_t i = 0; i < 6; ++i) trained.step(some_inputs(i));
  const auto scope = trained.strategy->compute_scope();
  const at::Tensor weight = trained.net->ptr(2)->as<torch::nn::Linear>()->weight;
  const auto write = [&] { *static_cast<float*>(const_cast<void*>(weight.const_data_ptr())) = 1; };
  EXPECT_EXIT(write(), ::testing::KilledBySignal(SIGSEGV),
              "strategy.fsdp.write: something writes to 2.weight of unit 0 within a forward");
}

TEST(FsdpShared, LeavesTheHandlersOfTheProgramAsTheyWere) {
  struct sigaction before = {}, within = {}, after = {};
  ::sigaction(SIGSEGV, nullptr, &before);
  {
    Trained trained({}, net_of_layers());
    ::sigaction(SIGSEGV, nullptr, &within);
  }
  ::sigaction(SIGSEGV, nullptr, &after);
  EXPECT_NE(within.sa_sigaction, before.sa_sigaction);
  EXPECT_EQ(after.sa_sigaction, before.sa_sigaction);
}

TEST(FsdpShared, GivesTheModuleBackWhole) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    torch::nn::Sequential net = net_of_layers();
    {
      Trained trained(connect("shm"), net);
      trained.step(some_inputs(0));
      trained.step(some_inputs(1));
    }
    if (levin::shard::layout_of(net->parameters().front()) != nullptr) return "still divided";
    net->parameters().front().detach().add_(0);  // is memory of its own
    return same(levin::module_state(*net), trained_alone(2), 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpOptions, OfOtherStrategiesAndWordsThatAreNoneAreRefused) {
  const auto error = [](std::string_view name, const levin::StrategyContext& context) {
    return error_of([&] { levin::make_strategy(name, context); });
  };
  EXPECT_THAT(error("fsdp", {.fsdp = {.cut = "columns"}}),
              HasSubstr("strategy.fsdp.options: got 'columns'"));
  EXPECT_THAT(error("fsdp", {.fsdp = {.zero_stage = 3}}), HasSubstr("--zero-stage 3"));
  EXPECT_THAT(error("zero", {.fsdp = {.zero_stage = 4}}), HasSubstr("wanted 1, 2 or 3"));
  EXPECT_THAT(error("fsdp", {.fsdp = {.gradient_reduction = "max"}}), HasSubstr("mean or sum"));
  EXPECT_THAT(error("fsdp", {.fsdp = {.unit_mb = 0}}), HasSubstr("--fsdp-unit-mb"));
  EXPECT_THAT(error("fsdp", {.fsdp = {.gathered_mb = -2}}), HasSubstr("--fsdp-gathered-mb"));
  EXPECT_THAT(error("fsdp", {.ddp = {.overlap = false}}), HasSubstr("--ddp-overlap"));
  EXPECT_THAT(error("fsdp", {.recordable = true}), HasSubstr("--compile replay"));
  EXPECT_THAT(error("single", {.fsdp = {.unit_mb = 3}}), HasSubstr("--fsdp-unit-mb"));
}

}  // namespace
