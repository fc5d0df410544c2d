// ddp with parameters that are frozen for a part of the training, or shared by modules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "tests/support/world.h"

namespace ddp_frozen {
namespace {

using levin::test::run_world;
using ::testing::Each;
using Layers = torch::nn::Sequential;

constexpr int64_t kRows = 8;

Layers body_and_head() {
  torch::manual_seed(4);
  return Layers(torch::nn::Linear(3, 6), torch::nn::Tanh(), torch::nn::Linear(6, 2));
}

void freeze(Layers& net, size_t layer, bool frozen) {
  for (const at::Tensor& p : net[layer]->parameters()) p.set_requires_grad(!frozen);
}

struct Plan {
  std::string name;
  levin::DdpOptions ddp = {};
  bool recordable = false;
  bool masters = false;
  /// Which layers are frozen in a step; -1: when the strategy is set up.
  std::function<bool(size_t layer, int64_t step)> frozen;
};
std::ostream& operator<<(std::ostream& out, const Plan& plan) { return out << plan.name; }

bool body_first(size_t layer, int64_t step) { return layer == 0 && step < 3; }
bool head_later(size_t layer, int64_t step) { return layer == 2 && step >= 3 && step < 6; }
bool in_turns(size_t layer, int64_t step) { return step >= 0 && step % 2 == (layer == 0 ? 0 : 1); }

/// Nine steps of 8 rows, of which each rank has a part.
at::Tensor trained(const Plan& plan, const levin::comm::ProcessGroup& group) {
  const bool alone = group.size() == 1;
  const levin::StrategyContext context{
      .group = group, .ddp = alone ? levin::DdpOptions{} : plan.ddp, .recordable = plan.recordable};
  const auto strategy = levin::make_strategy(alone ? "single" : "ddp", context);
  Layers net = body_and_head();
  const at::ScalarType type = plan.masters ? at::kBFloat16 : at::kDouble;
  net->to(type);
  for (const size_t layer : {0, 2}) freeze(net, layer, plan.frozen(layer, -1));
  strategy->setup(*net, at::kCPU);
  auto config = levin::OptimizerConfig(levin::optim::adamw({.lr = 0.05}));
  const auto optimizer =
      strategy->build_optimizer(config.master_weights(plan.masters), levin::named_parameters(*net));
  for (int64_t step = 0; step < 9; ++step) {
    for (const size_t layer : {0, 2}) freeze(net, layer, plan.frozen(layer, step));
    torch::manual_seed(50 + step);
    const at::Tensor mine =
        torch::randn({kRows, 3}).slice(0, group.rank(), kRows, group.size()).to(type);
    optimizer->zero_grad();
    strategy->backward(net->forward(mine).square().mean(), true);
    strategy->update(*optimizer);
  }
  return torch::nn::utils::parameters_to_vector(net->parameters()).detach().to(at::kDouble);
}

class DdpFrozen : public ::testing::TestWithParam<Plan> {};

TEST_P(DdpFrozen, RanksTogetherEqualOneRank) {
  const Plan& plan = GetParam();
  for (const std::string backend : {"shm", "gloo"}) {
    EXPECT_THAT(run_world(2,
                          [&](int64_t, const auto&) {
                            const at::Tensor alone = trained(plan, {});
                            const auto group = levin::test::connect(backend);
                            const at::Tensor got = trained(plan, group);
                            const double off = (got - alone).abs().max().item<double>();
                            return off <= (plan.masters ? 0.05 : 1e-9)
                                       ? std::string()
                                       : "off by " + std::to_string(off);
                          }),
                Each(""))
        << backend;
  }
}

TEST_P(DdpFrozen, AllRanksHaveTheSame) {
  EXPECT_THAT(run_world(3,
                        [&](int64_t, const auto&) {
                          auto group = levin::test::connect();
                          const at::Tensor mine = trained(GetParam(), group);
                          const at::Tensor first = mine.clone();
                          group.broadcast(first, 0);
                          return std::string(at::equal(mine, first) ? "" : "differs");
                        }),
              Each(""));
}

std::vector<Plan> plans() {
  constexpr double kTiny = 1e-5;  // MiB: a bucket for each gradient
  const levin::DdpOptions many = {.bucket_cap_mb = kTiny, .first_bucket_mb = kTiny};
  levin::DdpOptions strict = many;
  strict.find_unused_parameters = false;
  levin::DdpOptions in_waves = many;
  in_waves.overlap_update = true;
  std::vector<Plan> all;
  for (const auto& [name, frozen] :
       {std::pair("BodyFirst", &body_first), {"HeadLater", &head_later}, {"InTurns", &in_turns}}) {
    all.push_back({std::string(name) + "OneBucket", {}, false, false, frozen});
    all.push_back({std::string(name) + "ManyBuckets", strict, false, false, frozen});
    all.push_back({std::string(name) + "InWaves", in_waves, false, false, frozen});
    all.push_back({std::string(name) + "Recordable", {}, true, false, frozen});
    all.push_back({std::string(name) + "Masters", many, false, true, frozen});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, DdpFrozen, ::testing::ValuesIn(plans()),
                         [](const auto& info) { return info.param.name; });

/// A gradient that was not dropped lies in a bucket: it must not be summed once more.
TEST(DdpFrozenLater, AGradientThatStaysIsLeftAlone) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          Layers net = body_and_head();
                          const auto strategy =
                              levin::make_strategy("ddp", {.group = levin::test::connect(),
                                                           .ddp = {.gradient_reduction = "sum"}});
                          strategy->setup(*net, at::kCPU);
                          const auto loss = [&] {
                            return net->forward(torch::full({1, 3}, rank + 1.0)).sum();
                          };
                          strategy->backward(loss(), true);
                          const at::Tensor head = net[2]->parameters().front();
                          const at::Tensor before = head.grad().clone();
                          freeze(net, 2, true);
                          strategy->backward(loss(), true);
                          return std::string(at::equal(head.grad(), before) ? "" : "changed");
                        }),
              Each(""));
}

/// Two modules with one parameter between them, each with its own backward and with one for both.
TEST(DdpShared, AParameterOfTwoModulesIsReducedOnce) {
  for (const bool recordable : {false, true}) {
    for (const std::string reduction : {"mean", "sum"}) {
      EXPECT_THAT(
          run_world(2,
                    [&](int64_t rank, const auto&) {
                      torch::nn::Linear shared(torch::nn::LinearOptions(3, 3).bias(false));
                      Layers first(shared, torch::nn::Linear(3, 1));
                      Layers second(shared, torch::nn::Linear(3, 1));
                      {
                        const torch::NoGradGuard no_grad;
                        for (auto& p : first->parameters()) p.fill_(1);
                        for (auto& p : second->parameters()) p.fill_(1);
                      }
                      const auto strategy =
                          levin::make_strategy("ddp", {.group = levin::test::connect(),
                                                       .ddp = {.gradient_reduction = reduction,
                                                               .bucket_cap_mb = 1e-5,
                                                               .first_bucket_mb = 1e-5},
                                                       .recordable = recordable});
                      strategy->setup(*first, at::kCPU);
                      strategy->setup(*second, at::kCPU);
                      const at::Tensor x = torch::full({1, 3}, rank + 1.0);
                      strategy->backward(first->forward(x).sum() + second->forward(x).sum(), true);
                      const double mean = 2 * 1.5;
                      const at::Tensor wanted =
                          torch::full({3, 3}, reduction == "mean" ? mean : 2 * mean);
                      return at::allclose(shared->weight.grad(), wanted)
                                 ? std::string()
                                 : c10::str("got ", shared->weight.grad());
                    }),
          Each(""))
          << reduction << (recordable ? ", recordable" : "");
    }
  }
}

TEST(DdpRecordable, ASparseGradientIsReducedAsADenseOne) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 2).sparse(true));
                          const auto strategy = levin::make_strategy(
                              "ddp", {.group = levin::test::connect(), .recordable = true});
                          strategy->setup(*net, at::kCPU);
                          strategy->backward(net->forward(torch::full({1}, rank)).sum(), true);
                          const auto wanted = torch::tensor({0.5, 0.5, 0.0, 0.0}).unsqueeze(1);
                          return at::allclose(net->weight.grad(), wanted.expand({4, 2}))
                                     ? std::string()
                                     : c10::str("got ", net->weight.grad());
                        }),
              Each(""));
}

}  // namespace
}  // namespace ddp_frozen
