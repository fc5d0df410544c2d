// What ddp does beside the table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "levin/base/error.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

namespace comm = levin::comm;
using levin::test::run_world;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Layers = torch::nn::Sequential;

std::unique_ptr<levin::Strategy> ddp(const levin::DdpOptions& options = {}) {
  return levin::make_strategy("ddp", {.group = levin::test::connect(), .ddp = options});
}

Layers linear(int64_t out = 2) {
  torch::manual_seed(1);
  return Layers(torch::nn::Linear(3, out));
}

struct TwoHeadsImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr};
  TwoHeadsImpl() {
    torch::manual_seed(1);
    first = register_module("first", torch::nn::Linear(3, 2));
    second = register_module("second", torch::nn::Linear(3, 2));
  }
};
TORCH_MODULE(TwoHeads);

at::Tensor ones() { return torch::ones({1, 3}); }

std::string differs(const at::Tensor& got, const at::Tensor& wanted) {
  return at::allclose(got, wanted) ? "" : c10::str("got ", got, ", wanted ", wanted);
}

TEST(Ddp, GradientsAreTheMeanOverRanksOrTheirSum) {
  for (const std::string reduction : {"mean", "sum"}) {
    EXPECT_THAT(run_world(3,
                          [&](int64_t rank, const auto&) {
                            Layers net = linear();
                            const auto strategy = ddp({.gradient_reduction = reduction});
                            strategy->setup(*net, at::kCPU);
                            strategy->backward((net->forward(ones()) * (rank + 1)).sum(), true);
                            const double wanted = reduction == "mean" ? 2 : 6;
                            return differs(net->parameters()[0].grad(),
                                           torch::full({2, 3}, wanted));
                          }),
                Each(""));
  }
}

TEST(Ddp, HalfPrecisionOnTheWayIsRoundedOnce) {
  for (const auto& [hook, type] : {std::pair("bf16", at::kBFloat16), {"fp16", at::kHalf}}) {
    EXPECT_THAT(
        run_world(2,
                  [&, hook = std::string(hook), type = type](int64_t rank, const auto&) {
                    Layers net = linear();
                    const auto strategy = ddp({.comm_hook = hook});
                    strategy->setup(*net, at::kCPU);
                    const double factor = rank == 0 ? 0.1 : 0.7;
                    strategy->backward((net->forward(ones()) * factor).sum(), true);
                    const auto half = [&](double v) { return torch::full({2, 3}, v).to(type); };
                    const at::Tensor wanted =
                        ((half(0.1).to(at::kFloat) + half(0.7).to(at::kFloat)) / 2).to(type);
                    const at::Tensor got = net->parameters()[0].grad();
                    if (got.scalar_type() != at::kFloat) return std::string("wrong type");
                    return differs(got, wanted.to(at::kFloat));
                  }),
        Each(""));
  }
}

TEST(Ddp, WithoutSynchronizationGradientsStayApart) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          Layers net = linear();
                          const auto strategy = ddp();
                          strategy->setup(*net, at::kCPU);
                          strategy->backward((net->forward(ones()) * (rank + 1)).sum(), false);
                          return differs(net->parameters()[0].grad(),
                                         torch::full({2, 3}, rank + 1.0));
                        }),
              Each(""));
}

TEST(Ddp, GradientsThatAreNotZeroedAddUp) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          Layers net = linear();
                          const auto strategy = ddp();
                          strategy->setup(*net, at::kCPU);
                          for (int step = 0; step < 3; ++step) {
                            strategy->backward((net->forward(ones()) * (rank + 1)).sum(), true);
                          }
                          return differs(net->parameters()[0].grad(), torch::full({2, 3}, 4.5));
                        }),
              Each(""));
}

TEST(Ddp, GradientsCanBeZeroedInPlace) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          Layers net = linear();
                          const auto strategy = ddp();
                          strategy->setup(*net, at::kCPU);
                          for (int step = 0; step < 3; ++step) {
                            net->zero_grad(/*set_to_none=*/false);
                            strategy->backward((net->forward(ones()) * (rank + 1)).sum(), true);
                          }
                          return differs(net->parameters()[0].grad(), torch::full({2, 3}, 1.5));
                        }),
              Each(""));
}

TEST(Ddp, AParameterThatOneRankUsesHasAGradientOnAll) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          TwoHeads net;
                          const auto strategy = ddp();
                          strategy->setup(*net, at::kCPU);
                          auto& head = rank == 0 ? net->first : net->second;
                          strategy->backward(head->forward(ones()).sum(), true);
                          return differs(net->first->weight.grad(), torch::full({2, 3}, 0.5)) +
                                 differs(net->second->weight.grad(), torch::full({2, 3}, 0.5));
                        }),
              Each(""));
}

TEST(Ddp, AParameterThatNoRankUsesKeepsNoGradient) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          TwoHeads net;
                          const auto strategy = ddp();
                          strategy->setup(*net, at::kCPU);
                          for (int step = 0; step < 2; ++step) {
                            strategy->backward(net->first->forward(ones()).sum(), true);
                          }
                          return std::string(net->second->weight.grad().defined() ? "has one" : "");
                        }),
              Each(""));
}

TEST(Ddp, UnusedParametersAreAnErrorThatNamesThem) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          TwoHeads net;
                          const auto strategy = ddp({.find_unused_parameters = false});
                          strategy->setup(*net, at::kCPU);
                          strategy->backward(net->first->forward(ones()).sum(), true);
                          return "";
                        }),
              Each(AllOf(StartsWith("strategy.ddp.unused: 2 of 4 parameters"),
                         HasSubstr("second.weight, second.bias"))));
}

TEST(Ddp, AStaticGraphThatChangesIsAnErrorThatNamesTheParameter) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          TwoHeads net;
                          const auto strategy = ddp({.static_graph = true});
                          strategy->setup(*net, at::kCPU);
                          strategy->backward(net->first->forward(ones()).sum(), true);
                          strategy->backward(net->second->forward(ones()).sum(), true);
                          return "";
                        }),
              Each(AllOf(StartsWith("strategy.ddp.static_graph: parameter second."),
                         HasSubstr("had none in the first step"))));
}

TEST(Ddp, AParameterThatIsUnfrozenLaterIsReducedToo) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          TwoHeads net;
                          net->second->weight.set_requires_grad(false);
                          const auto strategy = ddp();
                          strategy->setup(*net, at::kCPU);
                          const auto loss = [&] {
                            return ((net->first->forward(ones()) + net->second->forward(ones())) *
                                    (rank + 1))
                                .sum();
                          };
                          strategy->backward(loss(), true);
                          net->second->weight.set_requires_grad(true);
                          net->zero_grad();
                          strategy->backward(loss(), true);
                          return differs(net->second->weight.grad(), torch::full({2, 3}, 1.5)) +
                                 differs(net->first->weight.grad(), torch::full({2, 3}, 1.5));
                        }),
              Each(""));
}

TEST(Ddp, OfTwoModulesOneBackwardConcernsOne) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          Layers generator = linear();
                          Layers critic = linear();
                          const auto strategy = ddp();
                          strategy->setup(*generator, at::kCPU);
                          strategy->setup(*critic, at::kCPU);
                          strategy->backward((generator->forward(ones()) * (rank + 1)).sum(), true);
                          strategy->backward((critic->forward(ones()) * (rank + 3)).sum(), true);
                          return differs(generator->parameters()[0].grad(),
                                         torch::full({2, 3}, 1.5)) +
                                 differs(critic->parameters()[0].grad(), torch::full({2, 3}, 3.5));
                        }),
              Each(""));
}

/// Two modules of two heads each in buckets of one tensor. Ranks differ in which heads they use, and one may have no
/// loss at all.
struct TwoModules {
  TwoHeads generator, critic;
  std::unique_ptr<levin::Strategy> strategy;

  explicit TwoModules(bool is_recordable = false)
      : strategy(
            levin::make_strategy("ddp", {.group = levin::test::connect(),
                                         .ddp = {.bucket_cap_mb = 1e-5, .first_bucket_mb = 1e-5},
                                         .recordable = is_recordable})) {
    strategy->setup(*generator, at::kCPU);
    strategy->setup(*critic, at::kCPU);
  }
  /// By heads of the one and the other in turn, of which rank 1 leaves one out.
  at::Tensor loss(int64_t rank) {
    at::Tensor sum = critic->second->forward(ones());
    if (rank == 0) sum = sum + generator->second->forward(ones());
    sum = sum + critic->first->forward(ones()) + generator->first->forward(ones());
    return sum.sum() * (rank + 1);
  }
  at::Tensor loss_of_critic() {
    return (critic->first->forward(ones()) + critic->second->forward(ones())).sum();
  }
  std::string heads_differ(TwoHeads& net, double first, double second) {
    return differs(net->first->weight.grad(), torch::full({2, 3}, first)) +
           differs(net->second->weight.grad(), torch::full({2, 3}, second));
  }
};

TEST(Ddp, OfTwoModulesRanksMayUseDifferentParameters) {
  for (const bool is_recordable : {false, true}) {
    EXPECT_THAT(run_world(2,
                          [&](int64_t rank, const auto&) {
                            TwoModules modules(is_recordable);
                            std::string differences;
                            for (int64_t step = 0; step < 3; ++step) {
                              modules.generator->zero_grad();
                              modules.critic->zero_grad();
                              modules.strategy->backward(modules.loss(rank), true);
                              differences += modules.heads_differ(modules.generator, 1.5, 0.5) +
                                             modules.heads_differ(modules.critic, 1.5, 1.5);
                            }
                            return differences;
                          }),
                Each(""));
  }
}

TEST(Ddp, OfTwoModulesARankMayHaveNoLoss) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          TwoModules modules;
                          modules.strategy->backward(modules.loss(rank), true);
                          modules.generator->zero_grad();
                          modules.critic->zero_grad();
                          modules.strategy->backward(
                              rank == 0 ? modules.loss_of_critic() : at::Tensor(), true);
                          const at::Tensor none = modules.generator->first->weight.grad();
                          return modules.heads_differ(modules.critic, 0.5, 0.5) +
                                 (none.defined() ? "the generator has a gradient" : "");
                        }),
              Each(""));
}

TEST(Ddp, OfTwoModulesARankMayRunOutOfData) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          TwoModules modules;
                          auto& joinable = dynamic_cast<levin::Joinable&>(*modules.strategy);
                          joinable.begin_join(/*by_present=*/true);
                          if (rank == 0) {
                            modules.strategy->backward(modules.loss_of_critic(), true);
                          }
                          while (joinable.shadow_step()) {
                          }
                          return modules.heads_differ(modules.critic, 1, 1);
                        }),
              Each(""));
}

/// In the second step backward throws on all ranks, behind the first buckets, and rank 1 comes late to it and to the
/// next: what was begun is over before its memory gets other gradients.
std::string goes_on_after_an_error(int64_t rank, bool is_recordable) {
  Layers net(torch::nn::Linear(3, 2), torch::nn::Linear(2, 2));
  const auto strategy =
      levin::make_strategy("ddp", {.group = levin::test::connect(),
                                   .ddp = {.bucket_cap_mb = 1e-5, .first_bucket_mb = 1e-5},
                                   .recordable = is_recordable});
  strategy->setup(*net, at::kCPU);
  for (int64_t step = 0; step < 3; ++step) {
    net->zero_grad();
    const at::Tensor inner = net[0]->as<torch::nn::Linear>()->forward(ones());
    const at::Tensor loss = net[1]->as<torch::nn::Linear>()->forward(inner).sum();
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(step == 0 ? 0 : 200));
    if (step == 1) {
      inner.register_hook([](const at::Tensor& gradient) {
        throw std::runtime_error("a wire came loose");
        return gradient;
      });
    }
    try {
      strategy->backward(loss * static_cast<double>(step + 10 * rank + 1), true);
    } catch (const std::runtime_error&) {
      if (step != 1) throw;
    }
  }
  return differs(net[1]->as<torch::nn::Linear>()->bias.grad(), torch::full({2}, 8.0));
}

TEST(Ddp, ABackwardThatThrewLeavesNothingUnderWay) {
  for (const bool is_recordable : {false, true}) {
    EXPECT_THAT(
        run_world(2, [&](int64_t rank,
                         const auto&) { return goes_on_after_an_error(rank, is_recordable); }),
        Each(""));
  }
}

/// Its backward runs one of its own through the same weight, as activation checkpointing may.
std::string backward_in_backward(bool overlap) {
  Layers net = linear();
  const auto strategy = ddp({.overlap = overlap});
  strategy->setup(*net, at::kCPU);
  const at::Tensor weight = net->parameters()[0];
  const at::Tensor out = net->forward(ones());
  out.register_hook([&](const at::Tensor& gradient) {
    const at::AutoGradMode on(true);
    (weight * 2).sum().backward();
    return gradient;
  });
  strategy->backward(out.sum(), true);
  return differs(weight.grad(), torch::full({2, 3}, 3.0));
}

TEST(Ddp, ASecondGradientInOneBackwardNeedsNoOverlap) {
  EXPECT_THAT(run_world(2, [](int64_t, const auto&) { return backward_in_backward(false); }),
              Each(""));
}

TEST(Ddp, ASecondGradientThatComesTooLateIsAnErrorThatSaysSo) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          Layers net(torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)));
                          const auto strategy = ddp();
                          strategy->setup(*net, at::kCPU);
                          const at::Tensor weight = net->parameters()[0];
                          const at::Tensor out = net->forward(ones());
                          out.register_hook([&](const at::Tensor& gradient) {
                            const at::AutoGradMode on(true);
                            (weight * 2).sum().backward();
                            return gradient;
                          });
                          strategy->backward(out.sum(), true);
                          return std::string();
                        }),
              Each(AllOf(StartsWith("strategy.ddp.twice: parameter 0.weight got a second gradient"),
                         HasSubstr("--ddp-overlap false"))));
}

TEST(Ddp, ASparseGradientIsReducedAsADenseOne) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 2).sparse(true));
                          const auto strategy = ddp();
                          strategy->setup(*net, at::kCPU);
                          strategy->backward(net->forward(torch::full({1}, rank)).sum(), true);
                          const auto wanted = torch::tensor({0.5, 0.5, 0.0, 0.0}).unsqueeze(1);
                          return differs(net->weight.grad(), wanted.expand({4, 2}));
                        }),
              Each(""));
}

// Heads that a rank uses in some steps only, clipping in others, and buckets of one tensor.
at::Tensor trained_heads(const comm::ProcessGroup& group, bool in_waves) {
  const levin::DdpOptions options = {
      .bucket_cap_mb = 1e-5, .first_bucket_mb = 1e-5, .overlap_update = in_waves};
  const auto strategy = levin::make_strategy("ddp", {.group = group, .ddp = options});
  TwoHeads net;
  strategy->setup(*net, at::kCPU);
  const auto optimizer =
      strategy->build_optimizer(levin::optim::adam({.lr = 0.1}), levin::named_parameters(*net));
  for (int64_t step = 0; step < 8; ++step) {
    optimizer->zero_grad();
    at::Tensor out = net->first->forward(ones() * (group.rank() + 1));
    if (step % 2 == group.rank() || step == 5) out = out + net->second->forward(ones());
    strategy->backward(out.square().sum(), true);
    if (step % 3 == 2) strategy->clip_grad_norm(optimizer->parameters(), 0.5, 2.0);
    strategy->update(*optimizer);
  }
  return torch::nn::utils::parameters_to_vector(net->parameters()).detach();
}

TEST(Ddp, UpdatesInWavesEqualWholeSteps) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          const auto group = levin::test::connect();
                          const at::Tensor whole = trained_heads(group, false);
                          const at::Tensor in_waves = trained_heads(group, true);
                          return at::equal(in_waves, whole)
                                     ? ""
                                     : c10::str("got ", in_waves, ", wanted ", whole);
                        }),
              Each(""));
}

TEST(Ddp, AUsersOwnHookStillRuns) {
  struct Count final : torch::autograd::PostAccumulateGradHook {
    explicit Count(int& runs) : runs(runs) {}
    void operator()(const torch::autograd::Variable&) override { ++runs; }
    int& runs;
  };
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          int runs = 0;
                          Layers net = linear();
                          torch::autograd::impl::set_post_acc_grad_hooks(
                              net->parameters()[0], std::make_unique<Count>(runs));
                          {
                            const auto strategy = ddp();
                            strategy->setup(*net, at::kCPU);
                            strategy->backward(net->forward(ones()).sum(), true);
                          }
                          net->forward(ones()).sum().backward();  // the strategy is gone
                          return runs == 2 ? "" : std::to_string(runs) + " runs";
                        }),
              Each(""));
}

TEST(Ddp, DifferentModulesAreAnErrorThatNamesTheTensor) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          Layers net = linear(2 + rank);
                          ddp()->setup(*net, at::kCPU);
                          return "";
                        }),
              Each(StartsWith("strategy.parameters: rank 1 has 0.weight Float [3, 3], but rank 0 "
                              "has 0.weight Float [2, 3]")));
}

TEST(Ddp, AModuleWithMoreParametersOnOneRankIsAnError) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          Layers net = linear();
                          if (rank == 1) net->push_back(torch::nn::Linear(2, 2));
                          ddp()->setup(*net, at::kCPU);
                          return "";
                        }),
              Each(AllOf(StartsWith("strategy.parameters: rank 1 has"),
                         HasSubstr(", but rank 0 has nothing"))));
}

TEST(Ddp, SingleOfSeveralRanksIsAnErrorAndAutoIsDdp) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          const levin::StrategyContext context{.group = levin::test::connect()};
                          if (levin::make_strategy("auto", context)->name() != "ddp") return "auto";
                          levin::make_strategy("single", context);
                          return "";
                        }),
              Each(StartsWith("strategy.single.world_size: strategy 'single' supports one process, "
                              "but this run has 2")));
}

TEST(Ddp, WordsThatAreNoneAreErrors) {
  for (const auto& [options, text] :
       {std::pair(levin::DdpOptions{.gradient_reduction = "average"}, "got 'average'"),
        {levin::DdpOptions{.comm_hook = "fp8"}, "got 'fp8'"},
        {levin::DdpOptions{.bucket_cap_mb = 0}, "--ddp-bucket-cap-mb: got 0 MiB"}}) {
    for (const bool recordable : {false, true}) {
      for (const std::string strategy : {"ddp", "auto"}) {
        const std::string error = levin::test::error_of(
            [&] { levin::make_strategy(strategy, {.ddp = options, .recordable = recordable}); });
        EXPECT_THAT(error, HasSubstr("strategy.ddp.options: " + std::string(text)));
      }
    }
  }
}

// What would do nothing.

std::string error_with(const levin::DdpOptions& options, const std::string& strategy) {
  return levin::test::error_of([&] { levin::make_strategy(strategy, {.ddp = options}); });
}

TEST(DdpOptions, ThatAStrategyDoesNotKnowAreErrorsThatNameBoth) {
  EXPECT_THAT(error_with({.comm_hook = "fp16", .overlap = false}, "single"),
              HasSubstr("strategy 'single' has no communication, but got --ddp-comm-hook"));
  EXPECT_EQ(error_with({.comm_hook = "fp16"}, "auto"), "no error");  // a run of several, on one
}

TEST(DdpOptions, OverlapUpdateWantsOneModuleAndAnOptimizerOfPartSteps) {
  const auto strategy = levin::make_strategy("ddp", {.ddp = {.overlap_update = true}});
  Layers net = linear();
  strategy->setup(*net, at::kCPU);
  const auto adagrad =
      levin::optim::torch_optimizer<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1));
  EXPECT_THAT(levin::test::error_of(
                  [&] { strategy->build_optimizer(adagrad, levin::named_parameters(*net)); }),
              HasSubstr("can only update all at once"));
  Layers other = linear();
  EXPECT_THAT(levin::test::error_of([&] { strategy->setup(*other, at::kCPU); }),
              StartsWith("strategy.ddp.options: --ddp-overlap-update supports one module"));
}

}  // namespace
