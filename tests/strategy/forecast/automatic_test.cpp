// The choice of --strategy auto against bytes reckoned by hand.
#include "levin/strategy/forecast/automatic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/module/wrap.h"
#include "levin/optim/optim.h"

namespace levin::test::automatic {
namespace {

using forecast::Description;
using forecast::Setting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kWidth = 256;
constexpr int64_t kLayers = 8;
constexpr int64_t kLayer = kWidth * kWidth * 4;  // bytes
constexpr int64_t kAll = kLayers * kLayer;

/// Eight layers of equal size, each a unit.
std::shared_ptr<torch::nn::Module> layers(at::ScalarType type = at::kFloat) {
  torch::nn::Sequential net;
  for (int64_t i = 0; i < kLayers; ++i) {
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
  }
  net->to(type);
  wrap_all(*net);
  return net.ptr();
}

Description described(at::ScalarType type = at::kFloat) {
  return forecast::describe({layers(type)}, FsdpOptions());
}

int64_t state_of(const std::vector<OptimizerConfig>& configs, bool masters = false,
                 at::ScalarType type = at::kFloat) {
  int64_t bytes = 0;
  for (const int64_t each : forecast::state_bytes_of(described(type), configs, masters)) {
    bytes += each;
  }
  return bytes;
}

TEST(AutomaticStrategyForecast, KnowsTheStateOfEachOptimizer) {
  EXPECT_EQ(state_of({}), 2 * kAll);  // as Adam
  EXPECT_EQ(state_of({optim::sgd({.lr = 0.1})}), 0);
  EXPECT_EQ(state_of({optim::sgd({.lr = 0.1, .momentum = 0.9})}), kAll);
  EXPECT_EQ(state_of({optim::adam({})}), 2 * kAll);
  EXPECT_EQ(state_of({optim::adamw({.amsgrad = true})}), 3 * kAll);
  EXPECT_EQ(state_of({optim::nadam({})}), 2 * kAll);
  EXPECT_EQ(state_of({optim::radam({})}), 2 * kAll);
  EXPECT_EQ(state_of({optim::lion({})}), kAll);
  EXPECT_EQ(state_of({optim::muon({})}), kAll);
  EXPECT_EQ(state_of({optim::adafactor({})}), kLayers * 2 * kWidth * 4);
  EXPECT_EQ(state_of({optim::adagrad({})}), kAll);
  EXPECT_EQ(state_of({optim::rmsprop({})}), 2 * kAll);  // at most
}

// What is built has the state that is reckoned.
TEST(AutomaticStrategyForecast, KnowsTheStateThatOptimizersMake) {
  for (const OptimizerConfig& config :
       {OptimizerConfig(optim::sgd({.momentum = 0.9})), OptimizerConfig(optim::adamw({})),
        OptimizerConfig(optim::adam({.amsgrad = true})), OptimizerConfig(optim::lion({})),
        OptimizerConfig(optim::nadam({})), OptimizerConfig(optim::radam({})),
        OptimizerConfig(optim::adafactor({})), OptimizerConfig(optim::muon({}))}) {
    const auto net = layers();
    const auto optimizer = optim::build_optimizer(config, named_parameters(*net));
    for (const at::Tensor& parameter : net->parameters()) {
      parameter.mutable_grad() = at::ones_like(parameter);
    }
    optimizer->step();
    int64_t bytes = 0;
    for (const NamedTensor& each : optimizer->named_state()) {
      if (each.tensor.numel() > 1) bytes += static_cast<int64_t>(each.tensor.nbytes());
    }
    EXPECT_EQ(state_of({config}), bytes) << config.name();
  }
}

TEST(AutomaticStrategyForecast, CountsMasterWeightsAndTheirState) {
  const int64_t half = kAll / 2;
  EXPECT_EQ(state_of({optim::adamw({})}, false, at::kBFloat16), 2 * half);
  EXPECT_EQ(state_of({optim::adamw({})}, true, at::kBFloat16), 3 * kAll);
  OptimizerConfig config = optim::adamw({});
  EXPECT_EQ(state_of({config.master_weights()}, false, at::kBFloat16), 3 * kAll);
  EXPECT_EQ(state_of({optim::adamw({})}, true), 2 * kAll);  // of no effect on float32
}

TEST(AutomaticStrategyForecast, CountsTrainedParametersOfTheOptimizersPattern) {
  const auto net = layers();
  net->parameters()[0].set_requires_grad(false);
  const Description description = forecast::describe({net}, FsdpOptions());
  const auto all = forecast::state_bytes_of(description, {optim::adam({})});
  EXPECT_EQ(all[0], 0);
  EXPECT_EQ(all[1], 2 * kLayer);
  OptimizerConfig first = optim::adam({}), rest = optim::sgd({.momentum = 0.9});
  const auto both =
      forecast::state_bytes_of(description, {first.parameters("1.*"), rest.parameters("2.*")});
  EXPECT_EQ(both[1], 2 * kLayer);
  EXPECT_EQ(both[2], kLayer);
  EXPECT_EQ(both[3], 0);
}

std::vector<std::string> names(const std::vector<Setting>& settings) {
  std::vector<std::string> text;
  for (const Setting& setting : settings) text.push_back(setting.name());
  return text;
}

TEST(AutomaticStrategyForecast, LikesDdpMost) {
  EXPECT_THAT(names(forecast::automatic_settings(1)), ElementsAre("single"));
  EXPECT_THAT(names(forecast::automatic_settings(4)),
              ElementsAre("ddp", "zero 1", "zero 2", "fsdp", "zero 3"));
}

struct Chosen {
  std::string name;
  bool fits;
  std::string reason;
};

/// memory: in layers, of what is left for all but activations.
Chosen chosen(const std::string& backend, int64_t ranks, double memory, int64_t batches = 1) {
  Description description = described();
  description.batches = batches;
  forecast::Cluster cluster = forecast::read_cluster("cpu");
  cluster.inside.backend = cluster.across.backend = backend;
  cluster.ranks_per_node = ranks;
  const auto settings = forecast::automatic_settings(ranks);
  const double bytes = memory * kLayer / (1.0 - forecast::kPartForActivations);
  const auto choice = forecast::choose_unrecorded(
      description, forecast::state_bytes_of(description, {optim::adam({})}), settings, cluster,
      bytes);
  return {settings[choice.chosen].name(), choice.fits, choice.reason};
}

// On shared memory: ddp keeps parameters, buckets, two of state and one gradient, 33 layers. On 2 ranks, zero keeps half
// of these, and two buffers for gradients: 18 layers.
TEST(AutomaticStrategyForecast, TakesDdpUntilItDoesNotFit) {
  EXPECT_EQ(chosen("shm", 2, 100).name, "ddp");
  EXPECT_EQ(chosen("shm", 2, 33.1).name, "ddp");
  EXPECT_EQ(chosen("shm", 2, 32.9).name, "zero 1");
  EXPECT_EQ(chosen("shm", 2, 18.1).name, "zero 1");
  EXPECT_TRUE(chosen("shm", 2, 18.1).fits);
  const Chosen none = chosen("shm", 2, 17.9);
  EXPECT_FALSE(none.fits);
  EXPECT_EQ(none.name, "zero 1");
  EXPECT_THAT(none.reason, HasSubstr("no strategy fits"));
  EXPECT_THAT(none.reason, HasSubstr("--offload"));
  EXPECT_EQ(chosen("shm", 4, 10.1).name, "zero 1");
  EXPECT_TRUE(chosen("shm", 4, 10.1).fits);
}

// Over gloo zero 1 and 2 gather all 8 layers, fsdp three of them; each has two buffers for what arrives.
TEST(AutomaticStrategyForecast, TakesFsdpWhereAllParametersDoNotFit) {
  EXPECT_EQ(chosen("gloo", 2, 100).name, "ddp");
  EXPECT_EQ(chosen("gloo", 2, 28.1).name, "zero 1");
  EXPECT_EQ(chosen("gloo", 2, 27.9).name, "fsdp");
  EXPECT_TRUE(chosen("gloo", 2, 23.1).fits);
  EXPECT_FALSE(chosen("gloo", 2, 22.9).fits);
}

// Under accumulation, zero 2 and 3 reduce after each batch; the others keep whole gradients meanwhile.
TEST(AutomaticStrategyForecast, TakesTheStagesThatReduceEachBatch) {
  EXPECT_EQ(chosen("shm", 2, 26.1, 4).name, "zero 1");
  EXPECT_EQ(chosen("shm", 2, 25.9, 4).name, "zero 2");
  EXPECT_EQ(chosen("gloo", 2, 27.9, 4).name, "zero 3");
}

TEST(AutomaticStrategyForecast, SaysWhatIsNeededAndWhatIsThere) {
  const std::string reason = chosen("shm", 2, 20).reason;
  EXPECT_THAT(reason, HasSubstr("zero 1 on fsdp=2: a rank needs 0.00472 GB (parameters "));
  EXPECT_THAT(reason, HasSubstr(" of 0.00655 GB less 20 % for activations"));
  EXPECT_THAT(reason, HasSubstr("ddp on dp=2 would need 0.00865 GB"));
}

}  // namespace
}  // namespace levin::test::automatic
