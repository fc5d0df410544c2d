// Fine-tuning beside transformers' Trainer, PEFT, TRL and sentence-transformers: the same model, the same batches
// in the same order, the loss of each step. LEVIN_FINE_TUNING_STEPS=100 takes more of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
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

/// By the rows of a file, in their order.
std::shared_ptr<Losses> train(const fs::path& folder, const json& facts,
                              const char* file = "rows.safetensors", const char* batch = "batch") {
  const auto net = from_pretrained(folder / "model", {.task = facts["task"].get<std::string>()});
  if (fs::exists(folder / "adapter")) lora::load(*net, folder / "adapter");
  const State rows = load_weights(folder / file);
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
              DataLoader(data::tensors(all), {.batch_size = facts[batch].get<int64_t>()}));
  return losses;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

class FineTuning : public test::PythonTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static std::string steps(const std::string& otherwise) {
    const char* given = std::getenv("LEVIN_FINE_TUNING_STEPS");
    return given != nullptr ? given : otherwise;
  }

  static void expect_rewards(std::map<std::string, std::vector<double>>& found,
                             const json& wanted) {
    double worst = 0;
    for (const char* reward : {"chosen", "rejected", "accuracies", "margins"}) {
      std::vector<double> theirs;
      for (const json& step : wanted) theirs.push_back(step[reward].get<double>());
      worst = std::max(worst, largest_difference(found[reward], theirs));
    }
    EXPECT_LE(worst, 1e-4);
    std::printf("  rewards at most %.1e apart\n", worst);
  }

  /// The documents of each batch in one row, against the same in a row each; TRL's packed run beside it.
  static void expect_packed_as_apart(const fs::path& folder, const json& facts,
                                     const std::vector<double>& packed) {
    const auto apart = train(folder, facts, "rows_apart.safetensors", "batch_apart")->of_steps;
    EXPECT_LE(largest_difference(packed, apart), 1e-5);
    std::printf("  packed and a document a row: %.1e apart; TRL's packed run: %.1e\n",
                largest_difference(packed, apart),
                largest_difference(facts["trl_packed"].get<std::vector<double>>(),
                                   facts["losses"].get<std::vector<double>>()));
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
  const double worst = largest_difference(found->of_steps, wanted);
  EXPECT_LE(worst, name == "embed" ? 1e-5 : 1e-4);
  RecordProperty("worst", std::to_string(worst));
  std::printf("%s: %zu steps, from %.4f to %.4f, at most %.1e apart\n", name.c_str(), wanted.size(),
              wanted.front(), wanted.back(), worst);
  if (facts.contains("rewards")) expect_rewards(found->rewards, facts["rewards"]);
  if (facts.contains("trl_packed")) expect_packed_as_apart(file(name), facts, found->of_steps);
}

INSTANTIATE_TEST_SUITE_P(All, FineTuning,
                         ::testing::Values("bert", "bert_lora", "minilm", "minilm_lora", "sft",
                                           "sft_lora", "sft_assistant", "sft_packed", "dpo",
                                           "dpo_lora", "embed"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace levin::models
