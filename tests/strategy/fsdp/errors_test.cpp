// Errors of strategies fsdp and zero, which name unit and parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <thread>

#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/strategy/strategies.h"
#include "tests/strategy/fsdp/trained.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::test::connect;
using levin::test::error_of;
using levin::test::net_of_layers;
using levin::test::refusal_of;
using levin::test::run_world;
using levin::test::some_inputs;
using levin::test::Trained;
using ::testing::Each;
using ::testing::HasSubstr;

class FsdpErrors : public ::testing::TestWithParam<std::string> {};

TEST_P(FsdpErrors, AParameterInAGraphOutsideOfForwardIsAnErrorThatNamesIt) {
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
    if (error.find("strategy.fsdp.outside: parameter 0.weight of unit") == std::string::npos)
      return error;
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

TEST_P(FsdpErrors, AWriteToAParameterWithinForwardIsAnErrorThatNamesIt) {
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

TEST_P(FsdpErrors, AStepBetweenForwardAndBackwardIsAnError) {
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

TEST_P(FsdpErrors, AParameterThatIsReplacedByOneOfOtherSizesIsAnError) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    trained.step(some_inputs());
    trained.net->parameters().front().set_data(torch::ones({9, 6}));
    const std::string error = error_of([&] { trained.step(some_inputs()); });
    return error.find("strategy.fsdp.replaced: parameter 0.weight") != std::string::npos
               ? ""
               : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(FsdpErrors, AParameterThatIsReplacedWithinForwardIsAnErrorThatNamesIt) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    trained.step(some_inputs());
    at::Tensor loss;
    {
      const auto scope = trained.strategy->compute_scope();
      trained.net->parameters()[2].set_data(torch::ones({8, 8}));
      loss = trained.net->forward(some_inputs()).mean();
    }
    const std::string error = error_of([&] { trained.strategy->backward(loss, true); });
    return error.find("strategy.fsdp.replaced: parameter 2.weight") != std::string::npos &&
                   error.find("within a forward") != std::string::npos
               ? ""
               : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(FsdpErrors, AGradientThatIsChangedBetweenBatchesOfAGroupIsAnError) {
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

TEST_P(FsdpErrors, ASecondGradientOfOneBackwardIsAnErrorWhereTheFirstWasSent) {
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

// Operators of other threads are seen by no handler of this one: what is not here says so when it is
// read, and what is shared has its values at all times.
TEST_P(FsdpErrors, AParameterThatAnotherThreadReadsHasItsValuesOrIsAnErrorThatNamesIt) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    trained.step(some_inputs());
    const at::Tensor weight = trained.net->ptr(2)->as<torch::nn::Linear>()->weight;
    const double wanted = levin::full(weight).sum().item<double>();
    const auto scope = trained.strategy->compute_scope();
    double sum = 0;
    std::string error;
    std::thread([&] {
      const at::NoGradGuard no_grad;
      error = refusal_of([&] { sum = weight.sum().item<double>(); });
    }).join();
    if (GetParam() == "shm") return error.empty() && sum == wanted ? "" : "got " + error;
    const bool is_named =
        error.find("strategy.fsdp.unseen: parameter 2.weight of unit") != std::string::npos;
    const bool is_of_rank = error.find(c10::str("[rank ", rank, "]")) != std::string::npos;
    return is_named && is_of_rank ? "" : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

// cuDNN's recurrent layers take the storage of a weight, and look at its memory.
TEST_P(FsdpErrors, AParameterWhoseStorageAnOperatorTakesHasItsValues) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    trained.step(some_inputs());
    const at::Tensor weight = trained.net->ptr(2)->as<torch::nn::Linear>()->weight;
    const at::Tensor wanted = levin::full(weight).flatten();
    const at::NoGradGuard no_grad;
    const auto scope = trained.strategy->compute_scope();
    const at::Tensor all = at::empty({0}).set_(weight.storage());
    if (all.numel() < wanted.numel()) return "too few elements";
    const std::span got(all.const_data_ptr<float>(), static_cast<size_t>(wanted.numel()));
    const std::span values(wanted.const_data_ptr<float>(), got.size());
    return std::ranges::equal(got, values) ? "" : "other values";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(FsdpErrors, AViewThatIsReadOutsideOfForwardHasItsValuesOrIsAnErrorThatNamesIt) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    const torch::nn::Sequential net = net_of_layers();
    const at::Tensor kept = net->ptr(0)->as<torch::nn::Linear>()->weight.detach().t();
    Trained trained(connect(GetParam()), net);
    trained.step(some_inputs());
    double sum = 0;
    const std::string error = refusal_of([&] { sum = kept.sum().item<double>(); });
    if (GetParam() == "gloo") {
      const bool named =
          error.find("strategy.fsdp.unseen: parameter 0.weight of unit") != std::string::npos;
      return named ? "" : "got " + error;
    }
    const at::Tensor whole = levin::full(net->ptr(0)->as<torch::nn::Linear>()->weight);
    return sum == whole.t().sum().item<double>() ? "" : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(FsdpErrors, AForwardPassWithinThatOfAnotherThreadIsAnError) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect(GetParam()));
    std::string error;
    {
      const auto scope = trained.strategy->compute_scope();
      std::thread([&] { error = error_of([&] { trained.forward(some_inputs()); }); }).join();
    }
    if (error.find("strategy.fsdp.thread") == std::string::npos) return "got " + error;
    trained.step(some_inputs());
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpGatheredErrors, AWriteIsFoundInLaterPassesToo) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect("gloo"));
    for (int64_t i = 0; i < 12; ++i) trained.step(some_inputs(i));
    const auto scope = trained.strategy->compute_scope();
    const at::NoGradGuard no_grad;
    const std::string error =
        error_of([&] { trained.net->ptr(2)->as<torch::nn::Linear>()->weight.mul_(0.5); });
    return error.starts_with("strategy.fsdp.write: aten::mul_ writes to 2.weight of unit")
               ? ""
               : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Backends, FsdpErrors, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

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
  EXPECT_THAT(error("single", {.fsdp = {.unit_mb = 3}}), HasSubstr("--fsdp-unit-mb"));
}

TEST(FsdpOptions, RecordedStepsOnGpusAreRefused) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    return error_of([&] {
      levin::make_strategy("fsdp", {.group = connect("gloo"), .on_gpu = true, .recordable = true});
    });
  });
  EXPECT_THAT(words, Each(HasSubstr("strategy.fsdp.options: strategy 'fsdp' supports --compile "
                                    "replay on CPUs; on GPUs it is not there yet")));
}

// Steps that are recorded gather by operators. Whatever reads a parameter sees its values.
TEST(FsdpRecorded, ReadersSeeFullValues) {
  const auto words = run_world(3, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect("gloo"), net_of_layers(), {.unit_mb = 1e-4}, "fsdp", true);
    const levin::State full = levin::full(*trained.net);
    const auto scope = trained.strategy->compute_scope();
    for (const levin::NamedTensor& each : levin::named_parameters(*trained.net)) {
      const at::Tensor w = each.tensor, wanted = full.tensor(each.name);
      const std::vector<std::pair<at::Tensor, at::Tensor>> pairs = {
          {w.clone(), wanted},
          {w.t().contiguous(), wanted.t()},
          {w.select(0, 1) * 1, wanted.select(0, 1)},
          {w.unbind(0).back().clone(), wanted.unbind(0).back()},
          {w.slice(0, 1, 4).flip(0), wanted.slice(0, 1, 4).flip(0)},
          {at::stack({w, w}), at::stack({wanted, wanted})},
          {at::where(w > 0, w, 0), at::where(wanted > 0, wanted, 0)},
          {w.index({at::tensor({2, 0})}), wanted.index({at::tensor({2, 0})})},
          {w.unsqueeze(0).expand_as(at::stack({wanted, wanted})).sum(0), wanted * 2}};
      for (size_t i = 0; i < pairs.size(); ++i) {
        if (!at::equal(pairs[i].first, pairs[i].second)) {
          return each.name + " is read otherwise by way " + std::to_string(i);
        }
      }
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpRecorded, WritesAndViewsOfAnotherDtypeAreErrorsThatNameTheParameter) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    Trained trained(connect("gloo"), net_of_layers(), {}, "fsdp", true);
    const auto scope = trained.strategy->compute_scope();
    const at::NoGradGuard no_grad;
    const at::Tensor weight = trained.net->ptr(2)->as<torch::nn::Linear>()->weight;
    return error_of([&] { weight.mul_(0.5); }) + "; " +
           error_of([&] { weight.view(at::kInt).sum(); });
  });
  EXPECT_THAT(words, Each(HasSubstr("strategy.fsdp.write: aten::mul_")));
  EXPECT_THAT(words, Each(HasSubstr("strategy.fsdp.recorded_view: parameter 2.weight of Float is "
                                    "read as Int through a view")));
}

// The other ranks know from the first step which parameters a rank uses in a recorded one.
TEST(FsdpRecorded, AnotherUseOfParametersThanInTheFirstStepIsAnErrorThatNamesOne) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(6, 6), torch::nn::Linear(6, 6));
    const auto strategy =
        levin::make_strategy("fsdp", {.group = connect("shm"), .recordable = true});
    strategy->setup(*net, at::kCPU);
    const auto step = [&](bool both) {
      at::Tensor loss;
      {
        const auto full = strategy->compute_scope();
        const at::Tensor out = net->ptr<torch::nn::LinearImpl>(0)->forward(some_inputs());
        loss = (both ? net->ptr<torch::nn::LinearImpl>(1)->forward(out) : out).square().mean();
      }
      strategy->backward(loss, /*synchronize=*/true);
    };
    step(true);
    return error_of([&] { step(false); });
  });
  EXPECT_THAT(words,
              Each(HasSubstr("strategy.fsdp.unused: parameter 1.weight got no gradient but got "
                             "one in the first step; recorded steps must use the same")));
}

}  // namespace
