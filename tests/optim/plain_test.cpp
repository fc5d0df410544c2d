// NAdam, RAdam, Lion, Adafactor, Muon, RMSprop and Adagrad: saved and resumed, over frozen, half and
// sparse parameters, with options out of range; and what an OptimizerConfig says of its parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "tests/support/divided.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace plain_optimizers {
namespace {

using namespace levin::optim;  // NOLINT: the descriptions
using levin::NamedTensor;
using levin::OptimizerConfig;
using levin::test::error_id;
using levin::test::error_of;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<OptimizerConfig> configs() {
  return {nadam({.lr = 0.1}),
          radam({.lr = 0.1, .weight_decay = 0.1, .decoupled_weight_decay = true}),
          lion({.lr = 0.1, .weight_decay = 0.1}),
          adafactor(),
          adafactor({.lr = 0.1, .beta1 = 0.9, .relative_step = false}),
          muon({.lr = 0.1}),
          rmsprop({.lr = 0.1, .momentum = 0.5}),
          adagrad({.lr = 0.1})};
}

std::vector<NamedTensor> matrices(at::ScalarType type = at::kFloat) {
  torch::manual_seed(3);
  return {{"net.0.weight", torch::randn({5, 3}).to(type).requires_grad_()},
          {"net.1.weight", torch::randn({2, 4}).to(type).requires_grad_()}};
}

void give_gradients(const std::vector<NamedTensor>& parameters, int64_t step) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i].tensor;
    if (!parameter.requires_grad()) continue;
    torch::manual_seed(step * 10 + static_cast<int64_t>(i));
    parameter.mutable_grad() = torch::randn(parameter.sizes()).to(parameter.scalar_type());
  }
}

TEST(PlainOptimizer, AResumedRunRepeatsBitForBit) {
  for (const OptimizerConfig& config : configs()) {
    const auto first = matrices(), second = matrices();
    auto one = build_optimizer(config, first);
    for (int64_t step = 0; step < 8; ++step) {
      give_gradients(first, step);
      one->step();
    }
    for (size_t i = 0; i < first.size(); ++i) {
      const at::NoGradGuard no_grad;
      second[i].tensor.copy_(first[i].tensor);
    }
    auto other = build_optimizer(config, second);
    other->load_state_dict(one->state_dict());
    for (int64_t step = 8; step < 16; ++step) {
      for (const auto& [optimizer, parameters] : {std::pair(&one, &first), {&other, &second}}) {
        give_gradients(*parameters, step);
        (*optimizer)->step();
      }
    }
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(torch::equal(first[i].tensor, second[i].tensor)) << config.name();
    }
  }
}

TEST(PlainOptimizer, AStateOfOtherSizesIsRefusedAndChangesNothing) {
  for (const OptimizerConfig& config : configs()) {
    const auto small = matrices();
    auto one = build_optimizer(config, small);
    give_gradients(small, 0);
    one->step();
    std::vector<NamedTensor> large = {{"net.0.weight", torch::ones({7, 3}).requires_grad_()},
                                      {"net.1.weight", torch::ones({2, 4}).requires_grad_()}};
    auto other = build_optimizer(config, large);
    EXPECT_EQ(error_id([&] { other->load_state_dict(one->state_dict()); }), "optim.state.shape")
        << config.name();
  }
}

TEST(PlainOptimizer, LeavesAFrozenParameterAloneUntilItIsUnfrozen) {
  for (const OptimizerConfig& config : configs()) {
    const auto parameters = matrices();
    parameters[0].tensor.set_requires_grad(false);
    const at::Tensor before = parameters[0].tensor.clone();
    auto optimizer = build_optimizer(config, parameters);
    give_gradients(parameters, 0);
    optimizer->step();
    EXPECT_TRUE(torch::equal(parameters[0].tensor, before)) << config.name();
    parameters[0].tensor.set_requires_grad(true);
    give_gradients(parameters, 1);
    optimizer->step();
    EXPECT_FALSE(torch::equal(parameters[0].tensor, before)) << config.name();
  }
}

TEST(PlainOptimizer, TrainsHalfParametersAndKeepsMasterWeights) {
  for (const OptimizerConfig& config : configs()) {
    for (const bool has_masters : {false, true}) {
      const auto half = matrices(at::kBFloat16), full = matrices();
      auto of_half = build_optimizer(OptimizerConfig(config).master_weights(has_masters), half);
      auto of_full = build_optimizer(config, full);
      for (int64_t step = 0; step < 5; ++step) {
        give_gradients(half, step);
        give_gradients(full, step);
        of_half->step();
        of_full->step();
      }
      for (size_t i = 0; i < half.size(); ++i) {
        EXPECT_TRUE(torch::allclose(half[i].tensor.to(at::kFloat), full[i].tensor, 0.1, 0.1))
            << config.name();
      }
    }
  }
}

TEST(PlainOptimizer, ASparseGradientIsAnError) {
  const at::Tensor parameter = torch::ones({4, 2}).requires_grad_();
  auto optimizer = build_optimizer(lion(), {{"rows", parameter}});
  parameter.mutable_grad() = torch::ones({4, 2}).to_sparse();
  EXPECT_EQ(error_id([&] { optimizer->step(); }), "optim.sparse");
}

TEST(PlainOptimizer, OptionsOutOfRangeAreErrors) {
  const std::vector<std::function<OptimizerConfig()>> mistakes = {
      [] { return nadam({.lr = -1.0}); },
      [] { return nadam({.betas = {1.0, 0.9}}); },
      [] { return nadam({.eps = -1.0}); },
      [] { return nadam({.momentum_decay = -1.0}); },
      [] { return radam({.weight_decay = -1.0}); },
      [] { return radam({.betas = {0.9, 1.0}}); },
      [] { return lion({.lr = -1.0}); },
      [] { return lion({.betas = {-0.1, 0.9}}); },
      [] { return adafactor({.lr = 0.1}); },
      [] { return adafactor({.relative_step = false}); },
      [] { return adafactor({.lr = 0.1, .relative_step = false, .warmup_init = true}); },
      [] { return adafactor({.eps = {-1.0, 0.0}}); },
      [] { return adafactor({.clip_threshold = 0.0}); },
      [] { return adafactor({.decay_rate = 0.5}); },
      [] { return adafactor({.beta1 = 1.0}); },
      [] { return adafactor().schedule(constant()); },
      [] { return adafactor().group("net.0.*", {.lr = 0.1}); },
      [] { return muon({.lr = -1.0}); },
      [] { return muon({.momentum = -1.0}); },
      [] { return muon({.eps = -1.0}); },
      [] { return muon({.ns_steps = 100}); },
      [] { return muon({.adjust_lr_fn = "adamw"}); },
      [] { return rmsprop({.lr = -1.0}); },
      [] { return rmsprop({.alpha = 1.0}); },
      [] { return adagrad({.lr_decay = -1.0}); },
      [] { return adagrad({.eps = -1.0}); }};
  for (size_t i = 0; i < mistakes.size(); ++i) {
    EXPECT_EQ(error_id([&] { build_optimizer(mistakes[i](), matrices()); }), "optim.options") << i;
  }
}

TEST(PlainOptimizer, AdafactorShowsTheRateThatFollowsFromTheStep) {
  const auto parameters = matrices();
  auto optimizer = build_optimizer(adafactor({.warmup_init = true}), parameters);
  for (int64_t step = 0; step < 3; ++step) {
    give_gradients(parameters, step);
    optimizer->step();
  }
  EXPECT_DOUBLE_EQ(optimizer->groups().front().lr, 3e-6);
}

TEST(PlainOptimizer, MuonRefusesWhatIsNoMatrix) {
  EXPECT_THAT(
      error_of([] { build_optimizer(muon(), {{"bias", torch::zeros({3}).requires_grad_()}}); }),
      StartsWith("optim.muon: muon trains matrices, but bias has the shape [3]"));
}

TEST(PlainOptimizer, AComplexParameterIsRefused) {
  EXPECT_EQ(error_id([] {
              build_optimizer(lion(),
                              {{"w", torch::zeros({3}, at::kComplexFloat).requires_grad_()}});
            }),
            "optim.parameters");
}

TEST(PlainOptimizer, WholeMatricesAreRefusedWhereTheyAreSharded) {
  for (const OptimizerConfig& config : {OptimizerConfig(muon()), OptimizerConfig(adafactor())}) {
    EXPECT_THAT(
        levin::test::run_world(2,
                               [&](int64_t, const auto&) -> std::string {
                                 const levin::comm::DeviceMesh mesh(levin::test::connect(),
                                                                    {{"dp", 2}});
                                 const auto parameters = matrices();
                                 const auto rows = levin::test::divide(parameters, mesh);
                                 return error_of([&] { build_optimizer(config, parameters); });
                               }),
        Each(AllOf(StartsWith("optim.sharded: " + config.name() + " computes with whole matrices"),
                   HasSubstr("net.0.weight is sharded over ranks; use --strategy ddp"))));
  }
}

std::vector<NamedTensor> layers() {
  return {{"embedding.weight", torch::ones({4, 2}).requires_grad_()},
          {"layer.0.weight", torch::ones({2, 2}).requires_grad_()},
          {"layer.0.bias", torch::ones({2}).requires_grad_()},
          {"layer.1.weight", torch::ones({2, 2}).requires_grad_()},
          {"norm.weight", torch::ones({2}).requires_grad_()},
          {"head.weight", torch::ones({3, 2}).requires_grad_()},
          {"scale", torch::ones({}).requires_grad_()}};
}

/// By parameter, the rate and the weight decay of its group.
std::map<std::string, std::pair<double, double>> groups_of(const OptimizerConfig& config) {
  const auto optimizer = build_optimizer(config, layers());
  std::map<std::string, std::pair<double, double>> all;
  for (const ParameterGroup& group : optimizer->groups()) {
    for (const size_t member : group.members) {
      all[optimizer->parameters()[member].name] = {group.lr, group.weight_decay};
    }
  }
  return all;
}

TEST(OptimizerConfig, DecaysOnlyWeights) {
  for (const OptimizerConfig& config : {OptimizerConfig(adamw({.lr = 1.0, .weight_decay = 0.1})),
                                        OptimizerConfig(lion({.lr = 1.0, .weight_decay = 0.1})),
                                        rmsprop({.lr = 1.0, .weight_decay = 0.1})}) {
    auto groups = groups_of(OptimizerConfig(config).decay_only_weights().group(
        "layer.*", {.lr = 0.5, .weight_decay = 0.3}));
    using Pair = std::pair<double, double>;
    EXPECT_EQ(groups["embedding.weight"], Pair(1.0, 0.1));
    EXPECT_EQ(groups["head.weight"], Pair(1.0, 0.1));
    EXPECT_EQ(groups["layer.0.weight"], Pair(0.5, 0.3));
    EXPECT_EQ(groups["layer.0.bias"], Pair(0.5, 0.0));
    EXPECT_EQ(groups["norm.weight"], Pair(1.0, 0.0));
    EXPECT_EQ(groups["scale"], Pair(1.0, 0.0));
    EXPECT_EQ(groups_of(config)["norm.weight"], Pair(1.0, 0.1));
  }
}

TEST(OptimizerConfig, WeightsThatDecayAreSmallerAfterAStepWithoutGradient) {
  for (const OptimizerConfig& config :
       {OptimizerConfig(adamw({.lr = 0.1, .weight_decay = 0.5})).decay_only_weights(),
        rmsprop({.lr = 0.1, .weight_decay = 0.5}).decay_only_weights(),
        OptimizerConfig(sgd({.lr = 0.1, .weight_decay = 0.5})).decay_only_weights()}) {
    const auto parameters = layers();
    auto optimizer = build_optimizer(config, parameters);
    for (const auto& [name, tensor] : parameters) tensor.mutable_grad() = torch::zeros_like(tensor);
    optimizer->step();
    for (const auto& [name, tensor] : parameters) {
      EXPECT_EQ(tensor.flatten()[0].item<double>() < 1.0, tensor.dim() >= 2)
          << config.name() << " " << name;
    }
  }
}

TEST(OptimizerConfig, ALayersRateFallsTowardsTheInput) {
  auto groups = groups_of(OptimizerConfig(adamw({.lr = 1.0}))
                              .layerwise_lr_decay({"embedding.*", "layer.0.*", "layer.1.*"}, 0.5));
  EXPECT_EQ(groups["embedding.weight"].first, 0.125);
  EXPECT_EQ(groups["layer.0.weight"].first, 0.25);
  EXPECT_EQ(groups["layer.0.bias"].first, 0.25);
  EXPECT_EQ(groups["layer.1.weight"].first, 0.5);
  EXPECT_EQ(groups["head.weight"].first, 1.0);
  for (const double decay : {0.0, 1.5}) {
    EXPECT_EQ(error_id([&] { OptimizerConfig(adamw()).layerwise_lr_decay({"*"}, decay); }),
              "module.optimizer.layerwise");
  }
  EXPECT_EQ(error_id([] { OptimizerConfig(adamw()).layerwise_lr_decay({}, 0.5); }),
            "module.optimizer.layerwise");
}

TEST(OptimizerConfig, AFunctionChoosesParameters) {
  const auto is_hidden = [](const std::string& name, const at::Tensor& parameter) {
    return parameter.dim() == 2 && name.starts_with("layer.");
  };
  const auto names = [](const OptimizerConfig& config) {
    const auto optimizer = build_optimizer(config, layers());
    std::vector<std::string> all;
    for (const auto& [name, tensor] : optimizer->parameters()) all.push_back(name);
    return all;
  };
  EXPECT_THAT(names(OptimizerConfig(muon()).parameters_if(is_hidden)),
              ::testing::ElementsAre("layer.0.weight", "layer.1.weight"));
  EXPECT_THAT(names(OptimizerConfig(adamw()).parameters_if(std::not_fn(is_hidden))),
              ::testing::ElementsAre("embedding.weight", "layer.0.bias", "norm.weight",
                                     "head.weight", "scale"));
  EXPECT_EQ(error_id([&] {
              names(OptimizerConfig(muon()).parameters("head*").parameters_if(is_hidden));
            }),
            "optim.parameters");
}

}  // namespace
}  // namespace plain_optimizers
