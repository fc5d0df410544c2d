// levin's loops and Lightning's, on the same module: the order of a module's functions, the ones that replace a part of
// the Trainer's work among them, and the names and values that several validation loaders log, in resumed runs too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <fstream>

#include "levin/data/sources/sources.h"
#include "levin/optim/optim.h"
#include "levin/trainer/trainer.h"
#include "tests/oracle/python.h"
#include "tests/support/scratch.h"

namespace loops_oracle_test {
namespace {

using nlohmann::json;

levin::DataLoader loader(const json& of) {
  const int64_t start = of[0], count = of[1], size = of[2];
  return {levin::data::tensors(
              {{"x", torch::arange(start, start + count, torch::kDouble).reshape({-1, 1})}}),
          {.batch_size = size}};
}

struct Net : levin::Module {
  json setting, events = json::array();
  torch::nn::Linear layer{nullptr};

  explicit Net(json of) : setting(std::move(of)) {
    layer = register_module("layer", torch::nn::Linear(1, 1));
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    layer->weight.fill_(0.5);
    layer->bias.fill_(0.25);
  }
  void note(json event) { events.push_back(std::move(event)); }
  std::optional<levin::DataLoader> train_dataloader() override { return loader(setting["train"]); }
  std::vector<levin::DataLoader> val_dataloaders() override {
    std::vector<levin::DataLoader> all;
    for (const json& of : setting["val"]) all.push_back(loader(of));
    return all;
  }
  std::vector<levin::DataLoader> test_dataloaders() override { return val_dataloaders(); }
  at::Tensor loss_of(const levin::Batch& batch) {
    return (layer->forward(batch["x"] / 100) - 1).square().mean();
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
    note({"training_step", index});
    return loss_of(batch);
  }
  void evaluate(const levin::Batch& batch) {
    const at::Tensor loss = loss_of(batch);
    log("loss", loss);
    log("both", loss, {.on_step = true, .on_epoch = true});
    log("sum", batch["x"].sum(), {.reduce = "sum"});
  }
  void validation_step(const levin::Batch& batch, int64_t index) override {
    note({"validation_step", index, dataloader_index()});
    evaluate(batch);
  }
  void test_step(const levin::Batch& batch, int64_t index) override {
    note({"test_step", index, dataloader_index()});
    evaluate(batch);
  }
  void on_validation_epoch_end() override { log("epochs", 1.0); }
  levin::Batch on_before_batch_transfer(levin::Batch batch) override {
    note({"on_before_batch_transfer"});
    return batch;
  }
  levin::Batch transfer_batch_to_device(levin::Batch batch) override {
    note({"transfer_batch_to_device"});
    return Module::transfer_batch_to_device(std::move(batch));
  }
  levin::Batch on_after_batch_transfer(levin::Batch batch) override {
    note({"on_after_batch_transfer"});
    return batch;
  }
  void on_before_zero_grad(levin::OptimizerHandle&) override { note({"on_before_zero_grad"}); }
  void optimizer_zero_grad(levin::OptimizerHandle& optimizer) override {
    note({"optimizer_zero_grad"});
    Module::optimizer_zero_grad(optimizer);
  }
  void on_before_backward(const at::Tensor&) override { note({"on_before_backward"}); }
  void backward(const at::Tensor& loss) override {
    note({"backward"});
    Module::backward(loss);
  }
  void on_after_backward() override { note({"on_after_backward"}); }
  void on_before_optimizer_step(levin::OptimizerHandle&) override {
    note({"on_before_optimizer_step"});
  }
  void configure_gradient_clipping(levin::OptimizerHandle& optimizer, std::optional<double> value,
                                   std::string_view algorithm) override {
    note({"configure_gradient_clipping", value.value_or(0.0)});
    Module::configure_gradient_clipping(optimizer, value, algorithm);
  }
  void optimizer_step(levin::OptimizerHandle& optimizer) override {
    Module::optimizer_step(optimizer);
    note({"optimizer_step"});
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::sgd({.lr = 0.1, .momentum = 0.9});
  }
};

levin::TrainerOptions options_of(const json& setting, const std::string& root, int64_t epochs) {
  levin::TrainerOptions options;
  options.accelerator = "cpu";
  options.precision = "64-true";
  options.max_epochs = epochs;
  options.default_root_dir = root;
  options.logger = false;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.num_sanity_val_steps = 0;
  const json given = setting.value("trainer", json::object());
  if (given.contains("gradient_clip_val")) options.gradient_clip_val = given["gradient_clip_val"];
  options.accumulate_grad_batches = given.value("accumulate_grad_batches", 1);
  if (given.contains("limit_val_batches")) {
    const json& limit = given["limit_val_batches"];
    options.limit_val_batches =
        limit.is_number_float() ? levin::Portion(limit.get<double>()) : limit.get<int64_t>();
  }
  if (given.contains("val_check_interval")) {
    options.val_check_interval = given["val_check_interval"].get<double>();
  }
  return options;
}

json answer_here(const json& setting) {
  const levin::test::Scratch scratch;
  auto net = std::make_shared<Net>(setting);
  const std::string call = setting["call"];
  const bool resumes = call == "resume";
  const int64_t epochs = setting.value("epochs", 1);
  auto trainer =
      std::make_unique<levin::Trainer>(options_of(setting, scratch.str(), resumes ? 1 : epochs));
  levin::Metrics metrics;
  if (call == "validate") {
    metrics = trainer->validate(net);
  } else if (call == "test") {
    metrics = trainer->test(net);
  } else {
    trainer->fit(net);
    if (resumes) {
      net = std::make_shared<Net>(setting);
      trainer = std::make_unique<levin::Trainer>(options_of(setting, scratch.str(), epochs));
      trainer->fit(net, {.ckpt_path = "last"});
    }
  }
  metrics = trainer->callback_metrics();
  return {{"events", net->events},
          {"metrics", metrics},
          {"weights", {net->layer->weight.item<double>(), net->layer->bias.item<double>()}}};
}

class LoopsOracle : public levin::test::PythonTest {
 protected:
  void compare(const json& settings) const {
    std::ofstream(file("settings.json")) << settings.dump();
    std::string output;
    ASSERT_EQ(
        run("loops.py",
            "'" + file("settings.json").string() + "' '" + file("answers.json").string() + "'",
            &output),
        0)
        << output;
    const json answers = json::parse(std::ifstream(file("answers.json")));
    for (size_t i = 0; i < settings.size(); ++i) {
      const json here = answer_here(settings[i]);
      EXPECT_EQ(here["events"], answers[i]["events"]) << settings[i];
      EXPECT_EQ(here["metrics"].size(), answers[i]["metrics"].size())
          << here["metrics"] << answers[i]["metrics"];
      for (const auto& [name, value] : answers[i]["metrics"].items()) {
        ASSERT_TRUE(here["metrics"].contains(name)) << name << " of " << settings[i];
        EXPECT_NEAR(here["metrics"][name].get<double>(), value.get<double>(), 1e-6) << name;
      }
      for (size_t k = 0; k < 2; ++k) {
        EXPECT_NEAR(here["weights"][k].get<double>(), answers[i]["weights"][k].get<double>(),
                    1e-12);
      }
    }
  }
};

json setting(const std::string& call, json val, json trainer = json::object(), int64_t epochs = 2) {
  return {{"call", call},
          {"train", {0, 12, 3}},
          {"val", std::move(val)},
          {"trainer", std::move(trainer)},
          {"epochs", epochs}};
}

TEST_F(LoopsOracle, SeveralLoadersAreLightnings) {
  const json two = {{100, 4, 2}, {200, 3, 1}}, three = {{100, 5, 2}, {200, 3, 3}, {300, 7, 4}};
  compare({setting("validate", two), setting("validate", three), setting("test", three),
           setting("validate", {{100, 4, 2}}),
           setting("validate", {{100, 8, 1}, {200, 4, 2}}, {{"limit_val_batches", 0.5}}),
           setting("test", three), setting("validate", three, {{"limit_val_batches", 1}}),
           setting("fit", two), setting("fit", three, {{"val_check_interval", 0.5}}),
           setting("resume", two), setting("resume", three, {{"limit_val_batches", 1}}, 3)});
}

TEST_F(LoopsOracle, HooksThatReplaceAreCalledWhereLightningCallsThem) {
  const json one = {{100, 4, 2}};
  compare({setting("fit", one), setting("fit", one, {{"gradient_clip_val", 0.01}}),
           setting("fit", one, {{"accumulate_grad_batches", 2}}),
           setting("fit", one, {{"accumulate_grad_batches", 4}, {"gradient_clip_val", 0.02}}, 3),
           setting("resume", one, {{"gradient_clip_val", 0.01}})});
}

}  // namespace
}  // namespace loops_oracle_test
