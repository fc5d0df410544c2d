// levin beside Lightning's callbacks that change weights and learning rates: StochasticWeightAveraging,
// EMAWeightAveraging, WeightAveraging and BackboneFinetuning. The same rates in each step, the same weights
// at the end, and a resumed run that equals the uninterrupted one.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <cmath>

#include "levin/checkpoint/checkpoint.h"
#include "levin/data/sources/sources.h"
#include "levin/optim/optim.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"
#include "tests/oracle/python.h"
#include "tests/support/off_disk.h"

namespace lightning_callbacks {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kEpochs = 8;
constexpr int64_t kSteps = 5;  // of an epoch

/// lightning_callbacks.py has the same cases.
struct Case {
  std::string name;
  std::function<std::shared_ptr<levin::Callback>()> callback;
  bool norm = false;
  std::string optimizer = "sgd";
  std::string groups = "all";
  bool schedule = true;
};

at::Tensor halfway(const at::Tensor& average, const at::Tensor& value, int64_t) {
  return average + (value - average) / 2;
}

std::vector<Case> cases() {
  using levin::finetuning, levin::stochastic_weight_averaging, levin::weight_averaging;
  return {
      {"swa_cos",
       [] {
         return stochastic_weight_averaging(
             {.swa_lrs = {0.03}, .swa_epoch_start = 0.5, .annealing_epochs = 3});
       }},
      {.name = "swa_linear",
       .callback =
           [] {
             return stochastic_weight_averaging({.swa_lrs = {0.01, 0.2},
                                                 .swa_epoch_start = 3,
                                                 .annealing_epochs = 2,
                                                 .annealing_strategy = "linear"});
           },
       .groups = "two",
       .schedule = false},
      {.name = "swa_at_once",
       .callback =
           [] {
             return stochastic_weight_averaging(
                 {.swa_lrs = {0.03}, .swa_epoch_start = 4, .annealing_epochs = 0});
           },
       .optimizer = "adam"},
      {"swa_avg_fn",
       [] {
         return stochastic_weight_averaging(
             {.swa_lrs = {0.03}, .annealing_epochs = 2, .avg_fn = halfway});
       }},
      {.name = "swa_norm",
       .callback =
           [] {
             return stochastic_weight_averaging(
                 {.swa_lrs = {0.03}, .swa_epoch_start = 0.5, .annealing_epochs = 3});
           },
       .norm = true},
      {.name = "ema",
       .callback =
           [] {
             return weight_averaging(
                 {.decay = 0.9, .update_every_n_steps = 2, .update_starting_at_step = 3});
           },
       .norm = true},
      {.name = "ema_by_epoch",
       .callback =
           [] {
             return weight_averaging({.decay = 0.7,
                                      .update_every_n_steps = 0,
                                      .update_starting_at_epoch = 2,
                                      .use_buffers = false});
           },
       .norm = true},
      {"mean", [] { return weight_averaging({.decay = std::nullopt}); }},
      {"avg_fn", [] { return weight_averaging({.decay = std::nullopt, .avg_fn = halfway}); }},
      {.name = "finetuning",
       .callback =
           [] {
             return finetuning({.unfreeze_at_epoch = 2,
                                .lambda_func = [](int64_t) { return 1.5; },
                                .backbone_initial_ratio_lr = 0.3});
           },
       .norm = true,
       .groups = "head"},
      {.name = "finetuning_adam",
       .callback =
           [] {
             return finetuning({.unfreeze_at_epoch = 3, .should_align = false, .train_bn = false});
           },
       .norm = true,
       .optimizer = "adam",
       .groups = "head"},
      {.name = "finetuning_rate",
       .callback =
           [] {
             return finetuning(
                 {.unfreeze_at_epoch = 1,
                  .lambda_func = [](int64_t epoch) { return 1 + 1.0 / static_cast<double>(epoch); },
                  .backbone_initial_lr = 0.01});
           },
       .groups = "head",
       .schedule = false},
  };
}

struct Net : levin::Module {
  const Case& c;
  torch::nn::Sequential backbone{nullptr};
  torch::nn::Linear head{nullptr};
  std::vector<std::vector<double>> rates;  ///< of each step, by group

  Net(const Case& c, const levin::State& start) : c(c) {
    torch::nn::Sequential parts(torch::nn::Linear(6, 8));
    if (c.norm) parts->push_back(torch::nn::BatchNorm1d(8));
    parts->push_back(torch::nn::Tanh());
    backbone = register_module("backbone", parts);
    head = register_module("head", torch::nn::Linear(8, 3));
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (auto& parameter : named_parameters()) {
      if (start.contains(parameter.key())) parameter.value().copy_(start.tensor(parameter.key()));
    }
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    std::vector<double> now;
    for (const auto& group : trainer().optimizers()[0].optimizer().groups())
      now.push_back(group.lr);
    if (now.size() > 1 && c.groups == "head") std::swap(now[0], now[1]);  // Lightning adds it later
    rates.push_back(now);
    return torch::nn::functional::cross_entropy(head->forward(backbone->forward(batch["x"])),
                                                batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override {
    levin::OptimizerConfig config = c.optimizer == "adam"
                                        ? levin::OptimizerConfig(levin::optim::adam({.lr = 0.02}))
                                        : levin::optim::sgd({.lr = 0.1, .momentum = 0.9});
    if (c.groups == "two") config = config.group("backbone.*", {.lr = 0.05});
    if (c.groups == "head") config = config.group("backbone.*", {});
    if (!c.schedule) return config;
    return config.schedule(levin::optim::step({.step_size = 1, .gamma = 0.9}).by_epoch());
  }
};

std::shared_ptr<Net> trained(const Case& c, const levin::State& start, const fs::path& folder,
                             const std::string& from = "") {
  levin::TrainerOptions options;
  options.accelerator = "cpu";
  options.max_epochs = kEpochs;
  options.enable_progress_bar = options.enable_model_summary = false;
  options.logger = false;
  options.exit_on_signal = false;
  options.default_root_dir = folder.string();
  options.callbacks = {c.callback(), levin::model_checkpoint({.dirpath = (folder / "kept").string(),
                                                              .filename = "{epoch}",
                                                              .save_top_k = -1})};
  const auto net = std::make_shared<Net>(c, start);
  const auto data = levin::test::off_disk(
      levin::data::tensors({{"x", start.tensor("x")}, {"y", start.tensor("y")}}));
  options.ckpt_path = from;
  levin::Trainer(options).fit(net, levin::DataLoader(data, {.batch_size = 8}));
  return net;
}

/// Lightning averages the counts of batch norm too, which no average should change.
double off(const levin::State& a, const levin::State& b, bool with_counts = true) {
  double most = 0;
  for (const auto& [name, value] : b.values()) {
    if (!with_counts && name.ends_with("num_batches_tracked")) continue;
    const at::Tensor apart = a.tensor(name).to(at::kDouble) - b.tensor(name).to(at::kDouble);
    most = std::max(most, apart.abs().max().item<double>());
  }
  return most;
}

/// Those of the first weights that the module has.
levin::State first_of(const levin::State& start, const levin::State& weights) {
  levin::State common;
  for (const auto& [name, value] : start.values()) {
    if (weights.contains(name)) common.set(name, start.tensor(name));
  }
  return common;
}

class LightningCallbacks : public levin::test::PythonTest {};

TEST_F(LightningCallbacks, GiveTheRatesAndWeightsOfLightning) {
  std::string said;
  ASSERT_EQ(run("lightning_callbacks.py", "'" + file("").string() + "'", &said), 0) << said;
  const levin::State start = levin::load_weights(file("start.safetensors"));
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto net = trained(c, start, file("levin_" + c.name));
    const json facts = json::parse(levin::test::bytes_of(file(c.name + ".json")));
    // docs/lightning.md has these differences. Lightning's other resumed runs are compared with, too.
    const bool unfreezes = c.name.starts_with("finetuning");
    EXPECT_EQ(facts["resumed"].get<double>() > 1e-3, unfreezes);
    EXPECT_EQ(facts["moved"].get<double>() == 0.0, unfreezes);
    EXPECT_EQ(facts["stepped"].get<double>() > 1e-3, c.name == "swa_norm");
    const auto wanted = facts["rates"].get<std::vector<std::vector<double>>>();
    // A pass for batch norm has no step.
    const size_t steps = kEpochs * kSteps;
    ASSERT_GE(wanted.size(), steps);
    ASSERT_GE(net->rates.size(), steps);
    EXPECT_EQ(net->rates.size(), wanted.size());
    double worst = 0;
    for (size_t i = 0; i < steps; ++i) {
      for (size_t k = 0; k < wanted[i].size(); ++k) {
        worst = std::max(worst, std::abs(net->rates[i].at(k) - wanted[i][k]));
      }
    }
    EXPECT_LE(worst, 1e-12) << "rates";
    const levin::State weights = levin::module_state(*net);
    const levin::State theirs = levin::load_weights(file(c.name + ".safetensors"));
    EXPECT_EQ(weights.values().size(), theirs.values().size());
    EXPECT_GT(off(weights, first_of(start, weights)), 1e-2);
    const bool has_counts = c.name != "ema";
    EXPECT_EQ(off(weights, theirs) > 0.5, !has_counts);
    EXPECT_LE(off(weights, theirs, has_counts), 1e-6);
    std::printf("%s: weights %.1e apart\n", c.name.c_str(), off(weights, theirs, has_counts));
    const fs::path folder = file("levin_" + c.name);
    const auto again = trained(c, start, folder / "resumed", (folder / "kept/epoch=4").string());
    EXPECT_EQ(off(levin::module_state(*again), weights), 0.0) << "resumed";
  }
}

}  // namespace
}  // namespace lightning_callbacks
