// Fine-tuning beside transformers' Trainer, PEFT, TRL and sentence-transformers: the same model, the same batches
// in the same order, the loss of each step. LEVIN_FINE_TUNING_STEPS=100 takes more of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>

#include "levin/checkpoint/checkpoint.h"
#include "levin/data/sources/sources.h"
#include "levin/models/fine_tune/fine_tune.h"
#include "levin/models/lora.h"
#include "levin/trainer/trainer.h"
#include "tests/oracle/python.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The loss of each optimizer step, as the trainer forms it: the mean over all that counts in its group.
struct Losses : Callback {
  explicit Losses(bool weighs) : weighs(weighs) {}
  std::string state_key() const override { return "losses"; }

  void on_train_batch_end(Trainer& trainer, Module&, const at::Tensor& loss, const Batch& batch,
                          int64_t) override {
    // Of text-generation: labels that have a token before them.
    const double count = weighs
                             ? (batch["labels"].narrow(1, 1, batch["labels"].size(1) - 1) != -100)
                                   .sum()
                                   .item<double>()
                             : 1;
    sum += loss.item<double>() * count;
    counted += count;
    const Metrics logged = trainer.callback_metrics();
    for (const auto& [name, value] : logged) {
      if (name.starts_with("rewards/")) rewards[name.substr(8)].push_back(value);
    }
    if (trainer.global_step() == static_cast<int64_t>(of_steps.size())) return;
    of_steps.push_back(sum / counted);
    sum = counted = 0;
  }

  bool weighs;
  double sum = 0, counted = 0;
  std::vector<double> of_steps;
  std::map<std::string, std::vector<double>> rewards;
};

std::shared_ptr<Losses> train(const fs::path& folder, const json& facts) {
  const auto net = from_pretrained(folder / "model", {.task = facts["task"].get<std::string>()});
  if (fs::exists(folder / "adapter")) lora::load(*net, folder / "adapter");
  const State rows = load_weights(folder / "rows.safetensors");
  Batch all;
  for (const auto& [name, value] : rows.values()) all.set(name, rows.tensor(name));
  FineTuneOptions options{.objective = facts.value("objective", "auto"),
                          .lr = facts["lr"].get<double>(),
                          .weight_decay = facts.value("weight_decay", 0.0),
                          .beta = facts.value("beta", 0.1)};
  const int64_t accumulate = facts.value("accumulate", 1);
  const auto losses = std::make_shared<Losses>(accumulate > 1);
  Trainer trainer({.accelerator = "cpu",
                   .logger = false,
                   .callbacks = {losses},
                   .max_epochs = -1,
                   .max_steps = static_cast<int64_t>(facts["losses"].size()),
                   .log_every_n_steps = 1,
                   .enable_checkpointing = false,
                   .enable_progress_bar = false,
                   .enable_model_summary = false,
                   .accumulate_grad_batches = accumulate});
  trainer.fit(fine_tune(net, options),
              DataLoader(data::tensors(all), {.batch_size = facts["batch"].get<int64_t>()}));
  return losses;
}

class FineTuning : public test::PythonTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static std::string steps(const std::string& otherwise) {
    const char* given = std::getenv("LEVIN_FINE_TUNING_STEPS");
    return given != nullptr ? given : otherwise;
  }
};

TEST_P(FineTuning, EachStepHasTheLossThatItHasInPython) {
  const std::string name = GetParam();
  const bool is_large = name.starts_with("minilm") || name == "embed";
  if (is_large && !fs::exists(test::source_dir() + "/.deps/minilm/model.safetensors"))
    GTEST_SKIP() << "no .deps/minilm; scripts/minilm.sh fetches it";
  std::string said;
  const int code =
      run("fine_tuning.py",
          "'" + file("").string() + "' " + steps(is_large ? "8" : "16") + " " + name, &said);
  if (said.find("No module named 'trl'") != std::string::npos) GTEST_SKIP() << said;
  ASSERT_EQ(code, 0) << said;
  const json facts = json::parse(test::bytes_of(file(name) / "losses.json"));
  const auto found = train(file(name), facts);
  const auto wanted = facts["losses"].get<std::vector<double>>();
  ASSERT_EQ(found->of_steps.size(), wanted.size());
  const double tolerance = name == "embed" ? 1e-5 : 1e-4;
  double worst = 0;
  for (size_t step = 0; step < wanted.size(); ++step) {
    EXPECT_NEAR(found->of_steps[step], wanted[step], tolerance) << "step " << step;
    worst = std::max(worst, std::abs(found->of_steps[step] - wanted[step]));
  }
  RecordProperty("worst", std::to_string(worst));
  std::printf("%s: %zu steps, from %.4f to %.4f, at most %.1e apart\n", name.c_str(), wanted.size(),
              wanted.front(), wanted.back(), worst);
  if (!facts.contains("rewards")) return;
  for (const char* reward : {"chosen", "rejected", "accuracies", "margins"}) {
    const auto& own = found->rewards[reward];
    ASSERT_EQ(own.size(), wanted.size());
    for (size_t step = 0; step < own.size(); ++step)
      EXPECT_NEAR(own[step], facts["rewards"][step][reward].get<double>(), 1e-4) << reward;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FineTuning,
                         ::testing::Values("bert", "bert_lora", "minilm", "minilm_lora", "sft",
                                           "sft_lora", "dpo", "dpo_lora", "embed"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace levin::models
