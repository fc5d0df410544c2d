// Parameters that stay whole among divided ones, and parameters that never met autograd, under every strategy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "levin/shard/sharded_tensor.h"
#include "tests/strategy/fsdp/trained.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/sanitized.h"
#include "tests/support/world.h"

namespace whole_parameters {
namespace {

using levin::named_parameters;
using levin::test::connect;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;

/// A scalar, a vector of one element and a matrix, of which the first two get the same gradient.
struct ScaledImpl : torch::nn::Module {
  explicit ScaledImpl(at::ScalarType of_scalar = at::kFloat) {
    scalar = register_parameter("scalar", torch::ones({}, of_scalar));
    vector = register_parameter("vector", torch::ones({1}));
    matrix = register_parameter("matrix", torch::ones({4, 2}));
  }
  at::Tensor scalar, vector, matrix;
};

struct Case {
  std::string strategy;
  int64_t stage = 3;
  std::string reduction = "sum";
  std::string backend = "shm";
  bool sync_each_batch = true;
  int64_t size = 2;
  std::string ignored = {};
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return c.strategy + std::to_string(c.stage) + c.reduction + c.backend +
         (c.sync_each_batch ? "Each" : "Last") + "Of" + std::to_string(c.size) +
         (c.ignored.empty() ? "" : "Ignoring" + std::to_string(c.ignored.size()));
}

class WholeParameters : public ::testing::TestWithParam<Case> {};

// Two groups of two batches; the batch b of rank r counts r + 1 + b.
TEST_P(WholeParameters, AddUpOverBatchesAsDividedOnesDo) {
  const Case& c = GetParam();
  double wanted = 0;
  for (int64_t rank = 0; rank < c.size; ++rank) wanted += static_cast<double>(2 * rank + 3);
  if (c.reduction == "mean") wanted /= static_cast<double>(c.size);
  const auto words = run_world(c.size, [&](int64_t rank, const auto&) -> std::string {
    auto net = std::make_shared<ScaledImpl>();
    auto strategy = levin::make_strategy(
        c.strategy,
        {.group = connect(c.backend),
         .ddp = {.gradient_reduction = c.strategy == "ddp" ? c.reduction : "mean"},
         .fsdp = {.gradient_reduction = c.strategy == "ddp" ? "mean" : c.reduction,
                  .zero_stage = c.strategy == "zero" ? c.stage : levin::FsdpOptions().zero_stage,
                  .ignored_params = c.ignored}});
    strategy->setup(*net, at::kCPU);
    std::string word;
    const bool is_sharded = levin::shard::layout_of(net->matrix) != nullptr;
    if (is_sharded == (c.strategy == "ddp" || !c.ignored.empty())) word += "the matrix is wrong; ";
    for (int64_t group = 0; group < 2; ++group) {
      net->zero_grad(/*set_to_none=*/group == 0);
      for (int64_t batch = 0; batch < 2; ++batch) {
        at::Tensor loss;
        {
          const auto whole = strategy->compute_scope();
          loss = (net->scalar + net->vector.sum() + net->matrix.sum()) *
                 static_cast<double>(rank + 1 + batch);
        }
        strategy->backward(loss, c.sync_each_batch || batch == 1);
      }
      strategy->wait_gradients();
      for (const auto& [name, tensor] : named_parameters(*net)) {
        if (tensor.numel() == 0) continue;  // no row is this rank's
        const at::Tensor& gradient = tensor.grad();
        if (!gradient.defined() || !gradient.eq(wanted).all().template item<bool>())
          word += name + " has " + c10::str(gradient) + ", wanted " + std::to_string(wanted) + "; ";
      }
    }
    return word;
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    Reductions, WholeParameters,
    ::testing::Values(Case{"fsdp"}, Case{"fsdp", 3, "mean"}, Case{"fsdp", 3, "sum", "gloo"},
                      Case{"fsdp", 3, "sum", "shm", false}, Case{"fsdp", 3, "sum", "shm", true, 3},
                      Case{"zero", 1, "sum", "shm", false}, Case{"zero", 2}, Case{"zero", 3},
                      Case{"zero", 3, "mean", "gloo"}, Case{"ddp", 3, "sum"},
                      Case{"ddp", 3, "sum", "gloo", false}, Case{"ddp", 3, "mean"},
                      Case{"fsdp", 3, "sum", "shm", true, 1},
                      Case{"fsdp", 3, "mean", "shm", true, 2, "mat*"},
                      Case{"fsdp", 3, "sum", "gloo", false, 3, "matrix,vector"},
                      Case{"zero", 1, "mean", "shm", false, 2, "m?trix"}),
    name_of);

TEST(IgnoredParameters, OfNoNameAreAnErrorThatNamesThePattern) {
  auto net = std::make_shared<ScaledImpl>();
  const auto strategy =
      levin::make_strategy("fsdp", {.fsdp = {.ignored_params = "matrix,router.*"}});
  strategy->setup(*net, at::kCPU);
  EXPECT_EQ(
      error_of([&] { strategy->compute_scope(); }),
      "strategy.fsdp.ignored_params: got 'router.*' in --fsdp-ignored-params, but no parameter "
      "has a name that matches it");
}

TEST(WholeComplexParameters, AComplexScalarGetsTheSumOfComplexGradients) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    auto net = std::make_shared<ScaledImpl>(at::kComplexFloat);
    auto strategy = levin::make_strategy("fsdp", {.group = connect()});
    strategy->setup(*net, at::kCPU);
    at::Tensor loss;
    {
      const auto whole = strategy->compute_scope();
      const c10::complex<double> factor(1.0 + static_cast<double>(rank), 2.0);
      loss = at::real(net->scalar * factor) * net->matrix.sum();
    }
    strategy->backward(loss, /*synchronize=*/true);
    // 8 conj(factor), whose mean over the ranks is (1.5 - 2i)
    const auto got = net->scalar.grad().template item<c10::complex<float>>();
    return got == c10::complex<float>(12, -16) ? "" : c10::str(net->scalar.grad());
  });
  EXPECT_THAT(words, Each(""));
}

/// Tensors that were registered frozen have no autograd metadata at all.
struct WithPositionsImpl : torch::nn::Module {
  WithPositionsImpl() {
    positions = register_parameter("positions", torch::ones({6}), /*requires_grad=*/false);
    list = register_module("list", torch::nn::ParameterList(torch::full({2, 6}, 0.5)));
    linear = register_module("linear", torch::nn::Linear(6, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    return linear->forward(x + positions + list[0].sum(0));
  }
  at::Tensor positions;
  torch::nn::ParameterList list{nullptr};
  torch::nn::Linear linear{nullptr};
};

class NeverMetAutograd : public ::testing::TestWithParam<std::string> {};

TEST_P(NeverMetAutograd, TrainsAsInOneProcessAndCanBeUnfrozen) {
  const auto run = [](const std::string& name, const levin::comm::ProcessGroup& group) {
    torch::manual_seed(4);
    auto net = std::make_shared<WithPositionsImpl>();
    auto strategy = levin::make_strategy(name, {.group = group});
    strategy->setup(*net, at::kCPU);
    auto optimizer =
        strategy->build_optimizer(levin::optim::sgd({.lr = 0.1}), named_parameters(*net));
    for (int64_t step = 0; step < 4; ++step) {
      if (step == 2) net->positions.set_requires_grad(true);
      optimizer->zero_grad();
      at::Tensor loss;
      {
        const auto whole = strategy->compute_scope();
        loss = net->forward(levin::test::some_inputs(step)).square().mean();
      }
      strategy->backward(loss, /*synchronize=*/true);
      strategy->update(*optimizer);
    }
    return levin::full(*net);
  };
  const levin::State alone = run("single", {});
  EXPECT_FALSE(alone.tensor("positions").eq(1).all().item<bool>());
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    return levin::test::same(run(GetParam(), connect()), alone, 1e-6) ? "" : "other weights";
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Strategies, NeverMetAutograd, ::testing::Values("ddp", "fsdp", "zero"));

class LocalBackward : public ::testing::TestWithParam<std::string> {};

TEST_P(LocalBackward, IsFoundAtTheNextStepAndNamedOnEveryRank) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    levin::test::Trained trained(connect(), levin::test::net_of_layers(), {}, GetParam());
    trained.step(levin::test::some_inputs());
    trained.optimizer->zero_grad();
    std::string early;
    try {
      trained.forward(levin::test::some_inputs()).square().mean().backward();
    } catch (const std::exception& error) {
      early = error.what();
    }
    const std::string error = error_of([&] { trained.strategy->update(*trained.optimizer); });
    return error.find("strategy.backward.local: ") != std::string::npos &&
                   (error.find("weight has") != std::string::npos ||
                    error.find("bias has") != std::string::npos) &&
                   error.find("accelerator.backward(loss)") != std::string::npos
               ? ""
               : "got " + error + "; backward said " + early;
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(LocalBackward, IsFineWhereTheStrategysOwnFollows) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    levin::test::Trained trained(connect(), levin::test::net_of_layers(), {}, GetParam());
    {
      const auto whole = trained.strategy->compute_scope();
      trained.net->forward(levin::test::some_inputs()).square().mean().backward();
    }
    trained.step(levin::test::some_inputs(0));  // which begins with zero_grad()
    return levin::test::same(levin::full(*trained.net), levin::test::trained_alone(1), 1e-6)
               ? ""
               : "other weights";
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Strategies, LocalBackward, ::testing::Values("ddp", "fsdp", "zero"));

// A signal that somebody sends is none of the traps' faults.
TEST(FsdpSignals, ASegmentationFaultThatIsRaisedEndsTheProcess) {
  const pid_t child = levin::test::start_child([] {
    levin::test::Trained trained(levin::comm::ProcessGroup{}, levin::test::net_of_layers());
    ::raise(SIGSEGV);
    return 0;
  });
  EXPECT_EQ(levin::test::wait_for(child), levin::test::kSanitized ? 1 : -SIGSEGV);
}

}  // namespace
}  // namespace whole_parameters
