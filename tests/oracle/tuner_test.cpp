// levin's Tuner and Lightning's, on the same net, data and weights: the rates, the smoothed losses and the suggestion
// of a search for a learning rate, and the batch sizes that are tried where some do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>

#include "levin/data/sources/sources.h"
#include "levin/optim/optim.h"
#include "levin/trainer/trainer.h"
#include "levin/trainer/tuner/batch_size_search.h"
#include "tests/oracle/python.h"

namespace tuner_oracle_test {
namespace {

using nlohmann::json;

levin::DatasetPtr samples(int64_t count) {
  const auto x = torch::empty({count, 3}, torch::kDouble),
             y = torch::empty({count, 1}, torch::kDouble);
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<double>(i);
    for (int64_t j = 0; j < 3; ++j) x[i][j] = std::sin(0.7 * at + 1.3 * static_cast<double>(j));
    y[i][0] = std::cos(0.3 * at);
  }
  return levin::data::tensors({{"x", x}, {"y", y}});
}

struct Net : levin::Module {
  json setting;
  torch::nn::Linear a{nullptr}, b{nullptr};

  explicit Net(json of) : setting(std::move(of)) {
    a = register_module("a", torch::nn::Linear(3, 4));
    b = register_module("b", torch::nn::Linear(4, 1));
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    double k = 0.0;
    for (at::Tensor& parameter : parameters()) {
      std::vector<double> values;
      for (int64_t i = 0; i < parameter.numel(); ++i) {
        values.push_back(0.5 * std::sin(1.0 + static_cast<double>(i) + 5.0 * k));
      }
      parameter.copy_(torch::tensor(values, torch::kDouble).reshape(parameter.sizes()));
      k += 1.0;
    }
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    for (const json& without : setting.value("without_loss", json::array())) {
      if (without == index) return {};
    }
    return torch::mse_loss(b->forward(torch::tanh(a->forward(batch["x"]))), batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override {
    if (setting.value("optimizer", "") == "adamw") return levin::optim::adamw({.lr = 0.1});
    return levin::optim::sgd({.lr = 0.1, .momentum = 0.9})
        .schedule(levin::optim::step({.step_size = 2}));
  }
};

levin::LrFinder found_here(const json& setting, const std::string& root) {
  levin::TrainerOptions options;
  options.precision = "64-true";
  options.accelerator = "cpu";
  if (setting.contains("max_epochs")) options.max_epochs = setting["max_epochs"];
  options.accumulate_grad_batches = setting.value("accumulate", 1);
  options.logger = false;
  options.enable_checkpointing = false;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.default_root_dir = root;
  levin::Trainer trainer(options);
  const json& given = setting["options"];
  levin::LrFindOptions find;
  find.min_lr = given.value("min_lr", find.min_lr);
  find.max_lr = given.value("max_lr", find.max_lr);
  find.num_training = given.value("num_training", find.num_training);
  find.mode = given.value("mode", find.mode);
  if (given.contains("early_stop_threshold")) {
    find.early_stop_threshold.reset();
    if (!given["early_stop_threshold"].is_null()) {
      find.early_stop_threshold = given["early_stop_threshold"];
    }
  }
  const int64_t batch_size = setting["batch_size"];
  return levin::Tuner(trainer).lr_find(
      std::make_shared<Net>(setting),
      levin::DataLoader(samples(setting["samples"]), {.batch_size = batch_size}), find);
}

class TunerOracle : public levin::test::PythonTest {
 protected:
  json answers(const json& settings) const {
    std::ofstream(file("settings.json")) << settings.dump();
    std::string output;
    const int code =
        run("tuner.py",
            "'" + file("settings.json").string() + "' '" + file("answers.json").string() + "'",
            &output);
    EXPECT_EQ(code, 0) << output;
    return code == 0 ? json::parse(std::ifstream(file("answers.json"))) : json::array();
  }
};

json search(json options, const json& more = json::object()) {
  json setting = {{"call", "lr_find"}, {"samples", 48}, {"batch_size", 4}, {"options", options}};
  setting.update(more);
  return setting;
}

TEST_F(TunerOracle, LrFindIsLightnings) {
  const json settings = {
      search({{"num_training", 50}}),
      search(json::object()),
      search({{"mode", "linear"}, {"max_lr", 0.5}, {"num_training", 40}}),
      search({{"mode", "linear"}, {"min_lr", 1e-4}, {"max_lr", 1e-1}}, {{"optimizer", "adamw"}}),
      search({{"max_lr", 10.0}}, {{"optimizer", "adamw"}}),
      search({{"min_lr", 1e-3}, {"max_lr", 1e4}}),  // diverges
      search({{"min_lr", 1e-3}, {"max_lr", 1e2}, {"early_stop_threshold", 1.5}}),
      search({{"min_lr", 1e-3}, {"max_lr", 10.0}, {"early_stop_threshold", nullptr}}),
      search({{"num_training", 30}}, {{"max_epochs", 2}}),  // 24 batches
      // Windows that the epoch's end cuts short are left out: levin's are the mean of their batches.
      search({{"num_training", 20}}, {{"accumulate", 2}}),
      search({{"num_training", 20}}, {{"accumulate", 3}}),
      search({{"num_training", 30}}, {{"samples", 46}}),  // a short batch
      search({{"num_training", 40}, {"max_lr", 10.0}}, {{"without_loss", {2, 7, 8}}}),
      search({{"num_training", 8}}),  // too few for a suggestion
      search({{"num_training", 13}}),
  };
  const json lightning = answers(settings);
  ASSERT_EQ(lightning.size(), settings.size());
  for (size_t k = 0; k < settings.size(); ++k) {
    SCOPED_TRACE(settings[k].dump());
    const levin::LrFinder here = found_here(settings[k], file("root").string());
    const json& there = lightning[k];
    ASSERT_EQ(here.rates.size(), there["rates"].size());
    ASSERT_EQ(here.losses.size(), there["losses"].size());
    // Lightning's training_step returns the loss divided by the batches of a window.
    const double scale = settings[k].value("accumulate", 1.0);
    for (size_t i = 0; i < here.rates.size(); ++i) {
      const double rate = there["rates"][i];
      EXPECT_NEAR(here.rates[i], rate, 1e-12 * rate) << i;
      EXPECT_EQ(std::isnan(here.losses[i]), there["losses"][i].is_null()) << i;
      if (there["losses"][i].is_null()) continue;
      const double loss = there["losses"][i].get<double>() * scale;
      EXPECT_NEAR(here.losses[i], loss, 1e-6 * std::abs(loss)) << i;
    }
    const std::optional<double> suggestion = here.suggestion();
    ASSERT_EQ(suggestion.has_value(), !there["suggestion"].is_null());
    if (suggestion) {
      EXPECT_NEAR(*suggestion, there["suggestion"].get<double>(), 1e-12 * *suggestion);
    }
  }
}

// Lightning runs no step here: the script says which sizes do not fit.
TEST_F(TunerOracle, BatchSizesAreTriedInLightningsOrder) {
  json settings = json::array();
  for (const char* mode : {"power", "binsearch"}) {
    for (const int64_t init : {2, 16}) {
      for (const int64_t fits : {3, 5, 16, 37, 100, 511}) {
        settings.push_back(
            {{"call", "scale_batch_size"},
             {"samples", 1500},
             {"fits", fits},
             {"options", {{"mode", mode}, {"init_val", init}, {"steps_per_trial", 1}}}});
      }
    }
    settings.push_back({{"call", "scale_batch_size"},
                        {"samples", 1500},
                        {"fits", 700},
                        {"options", {{"mode", mode}, {"max_trials", 4}, {"steps_per_trial", 1}}}});
    settings.push_back({{"call", "scale_batch_size"},
                        {"samples", 1500},
                        {"fits", 300},
                        {"options", {{"mode", mode}, {"margin", 0.2}, {"steps_per_trial", 1}}}});
    settings.push_back({{"call", "scale_batch_size"},
                        {"samples", 1500},
                        {"fits", 300},
                        {"options", {{"mode", mode}, {"margin", 0.0}, {"steps_per_trial", 1}}}});
  }
  const json lightning = answers(settings);
  ASSERT_EQ(lightning.size(), settings.size());
  for (size_t k = 0; k < settings.size(); ++k) {
    SCOPED_TRACE(settings[k].dump());
    const json& given = settings[k]["options"];
    levin::ScaleBatchSizeOptions options;
    options.mode = given["mode"];
    options.init_val = given.value("init_val", options.init_val);
    options.max_trials = given.value("max_trials", options.max_trials);
    options.margin = given.value("margin", options.margin);
    const int64_t most = settings[k]["fits"];
    std::vector<int64_t> tried;
    const int64_t found = levin::detail::search_batch_size(options, 1500, [&](int64_t size) {
      tried.push_back(size);
      return size <= most;
    });
    EXPECT_EQ(found, lightning[k]["found"].get<int64_t>());
    EXPECT_EQ(tried, lightning[k]["tried"].get<std::vector<int64_t>>());
  }
}

}  // namespace
}  // namespace tuner_oracle_test
