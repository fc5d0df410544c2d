// Two ranks learn what one learns, as in example 16 at its length: the loss of each step, and the accuracy at the
// end. Without dropout, which ranks draw for themselves.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "levin/models/fine_tune/fine_tune.h"
#include "levin/models/lora.h"
#include "levin/rows/rows.h"
#include "levin/text/tokenizer.h"
#include "levin/trainer/trainer.h"
#include "tests/models/small_models.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;
using test::put;

/// The letters of a text; rows are of many lengths.
text::Tokenizer letters(const fs::path& folder) {
  std::string vocabulary = R"("[PAD]": 0, "[UNK]": 1)";
  for (char letter = 'a'; letter <= 'z'; ++letter)
    vocabulary += fmt::format(", \"{}\": {}", letter, letter - 'a' + 2);
  put(folder / "tokenizer.json",
      R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": false},
          "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {)" +
          vocabulary + "}}}");
  put(folder / "tokenizer_config.json", R"({"pad_token": "[PAD]", "unk_token": "[UNK]"})");
  return text::Tokenizer::from_pretrained(folder.string());
}

void write_rows(const fs::path& path, int64_t count, uint64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::string lines;
  for (int64_t row = 0; row < count; ++row) {
    const auto label = at::randint(3, {1}, generator).item<int64_t>();
    const auto length = at::randint(3, 25, {1}, generator).item<int64_t>();
    std::string text;
    // The letters of a label are more often among its own nine.
    for (int64_t i = 0; i < length; ++i) {
      const auto drawn = at::randint(26, {1}, generator).item<int64_t>();
      text += static_cast<char>('a' + (i % 3 == 0 ? label * 9 + drawn % 8 : drawn));
    }
    lines += fmt::format("{{\"text\": \"{}\", \"label\": \"{}\"}}\n", text, label);
  }
  put(path, lines);
}

struct Losses : Callback {
  std::vector<double> of_steps, logged;
  std::string state_key() const override { return "losses"; }
  void on_train_batch_end(Trainer& trainer, Module&, const at::Tensor& loss, const Batch&,
                          int64_t) override {
    const at::Tensor mean = trainer.accelerator().reduce(loss.detach(), ReduceOp::kMean);
    of_steps.push_back(mean.item<double>());
    logged.push_back(trainer.callback_metrics().at("train_loss"));
  }
};

struct Way {
  std::string name;
  int64_t lora_r = 0;
  std::string strategy = "auto";
};
std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

/// "accuracy loss-of-validation loss loss ...", of 32 rows a step over all ranks.
std::string trained(const Way& way, const fs::path& folder) {
  TrainerOptions options = {.accelerator = "cpu",
                            .strategy = way.strategy,
                            .logger = false,
                            .max_epochs = 2,
                            .num_sanity_val_steps = 0,
                            .enable_checkpointing = false,
                            .enable_progress_bar = false,
                            .enable_model_summary = false,
                            .default_root_dir = folder.string(),
                            .seed = 1,
                            .exit_on_signal = false};
  const auto losses = std::make_shared<Losses>();
  options.callbacks = {losses};
  Trainer trainer(options);
  const int64_t ranks = trainer.accelerator().num_processes();
  const fs::path own = folder / std::to_string(trainer.accelerator().process_index());
  fs::create_directories(own);
  const auto tokenizer = letters(own);
  write_rows(own / "train.jsonl", 320, 3);
  write_rows(own / "test.jsonl", 101, 4);
  const auto rows = text::rows((own / "train.jsonl").string(), tokenizer,
                               {.validation_file = (own / "test.jsonl").string(),
                                .max_length = 24,
                                .batch_size = 32 / ranks,
                                .cache_dir = (own / "cache").string()});
  rows->prepare_data();
  torch::manual_seed(2);
  const auto net =
      test::small(test::small_bert(), "text-classification", {.label_names = rows->label_names()});
  if (way.lora_r > 0)
    lora::add(net, {.r = way.lora_r, .lora_alpha = 8, .target_modules = {"all-linear"}});
  trainer.fit(fine_tune(net, {.lr = 2e-3}), rows);
  // What is logged is the mean over the ranks.
  for (size_t step = 0; step < losses->logged.size(); ++step)
    EXPECT_NEAR(losses->logged[step], losses->of_steps[step], 1e-6) << step;
  const Metrics metrics = trainer.callback_metrics();
  return fmt::format("{:.9g} {:.9g} {:.9g}", metrics.at("val_accuracy"), metrics.at("val_loss"),
                     fmt::join(losses->of_steps, " "));
}

std::vector<double> numbers_of(const std::string& words) {
  std::istringstream in(words);
  return {std::istream_iterator<double>(in), {}};
}

class FineTuneRanks : public ::testing::TestWithParam<Way> {};

TEST_P(FineTuneRanks, TwoLearnWhatOneLearns) {
  const auto train = [](int64_t, const fs::path& folder) { return trained(GetParam(), folder); };
  Way alone = GetParam();
  alone.strategy = "auto";
  const auto one =
      test::run_world(1, [&](int64_t, const fs::path& folder) { return trained(alone, folder); });
  const auto wanted = numbers_of(one.front());
  ASSERT_EQ(wanted.size(), 2U + 20) << one.front();
  // Of three labels; an adapter has only begun to learn in 20 steps.
  if (alone.lora_r == 0) EXPECT_GT(wanted[0], 0.5);
  EXPECT_LT(wanted.back(), wanted[2]);
  for (const std::string& words : test::run_world(2, train)) {
    const auto got = numbers_of(words);
    ASSERT_EQ(got.size(), wanted.size()) << words;
    EXPECT_NEAR(got[0], wanted[0], 0.005);
    EXPECT_NEAR(got[1], wanted[1], 1e-4);
    for (size_t step = 2; step < got.size(); ++step)
      EXPECT_NEAR(got[step], wanted[step], 1e-5) << "step " << step - 2;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FineTuneRanks,
                         ::testing::Values(Way{"Whole"}, Way{"Adapter", 4},
                                           Way{"WholeByFsdp", 0, "fsdp"},
                                           Way{"AdapterByFsdp", 4, "fsdp"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace levin::models
