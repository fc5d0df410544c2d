// Each task of `levin finetune` with each option of other tasks: used, or an error that names the option and the tasks
// that it is of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "levin/checkpoint/checkpoint.h"
#include "levin/models/fine_tune/fine_tune.h"
#include "tests/models/small_models.h"
#include "tests/rows/small_rows.h"
#include "tests/support/error_of.h"
#include "tools/command.h"

namespace {

namespace fs = std::filesystem;
using levin::test::put;
using levin::test::small;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

const Words kTasks{"classify", "tag", "embed", "lm", "mlm", "sft", "dpo"};

struct Option {
  Words words;
  Words tasks;            ///< that use it
  std::string said = "";  ///< as the error has them
};

const std::vector<Option>& options() {
  static const std::vector<Option> kOptions{
      {{"--label-names", "x,y"}, {"classify", "tag"}, "classify,tag"},
      {{"--problem-type", "single_label_classification"}, {"classify"}, "classify"},
      {{"--packing"}, {"classify", "tag", "lm", "mlm", "sft"}, "classify,tag,lm,mlm,sft"},
      {{"--packing-strategy", "bfd"},
       {"classify", "tag", "lm", "mlm", "sft"},
       "classify,tag,lm,mlm,sft"},
      {{"--completion-only-loss", "false"}, {"sft"}, "sft"},
      {{"--assistant-only-loss", "false"}, {"sft"}, "sft"},
      {{"--chat-template", ""}, {"sft", "dpo"}, "sft,dpo"},
      {{"--eos-token", "<end>"}, {"lm", "sft", "dpo"}, "lm,sft,dpo"},
      {{"--mlm-probability", "0.15"}, {"mlm"}, "mlm"},
      {{"--mask-replace-prob", "0.8"}, {"mlm"}, "mlm"},
      {{"--random-replace-prob", "0.1"}, {"mlm"}, "mlm"},
      {{"--beta", "0.1"}, {"dpo"}, "dpo"},
      {{"--label-smoothing", "0.0"}, {"dpo"}, "dpo"},
      {{"--objective", "in-batch-negatives"}, {"embed"}, "embed"},
      {{"--scale", "20"}, {"embed"}, "embed"},
      {{"--margin", "5", "--objective", "triplet"}, {"embed"}, "embed"},
      {{"--recall-at", "1"}, {"embed"}, "embed"},
      {{"--sample-prompts", "prompts.txt"}, {"lm", "sft", "dpo"}, "lm,sft,dpo"},
      {{"--sample-chat", "--sample-prompts", "prompts.txt"}, {"lm", "sft", "dpo"}, "lm,sft,dpo"},
      {{"--sample-every-n-steps", "1", "--sample-prompts", "prompts.txt"},
       {"lm", "sft", "dpo"},
       "lm,sft,dpo"}};
  return kOptions;
}

std::string rows_for(const std::string& task) {
  if (task == "classify")
    return "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"y\"}\n";
  if (task == "tag") return "{\"tokens\": [\"a\", \"b\"], \"tags\": [\"x\", \"y\"]}\n";
  if (task == "embed") return R"({"anchor": "a", "positive": "b", "negative": "c"})";
  if (task == "sft") return R"({"prompt": "a", "completion": "b"})";
  if (task == "dpo") return R"({"prompt": "a", "chosen": "b", "rejected": "c"})";
  return "{\"text\": \"a b c\"}\n{\"text\": \"d e f\"}\n";
}

class FinetuneOptions : public ::testing::Test {
 protected:
  void SetUp() override {
    model(levin::test::small_qwen3(), "text-generation", "writer");
    model(levin::test::small_bert(), "text-classification", "reader");
    model(levin::test::small_bert(), "fill-mask", "masked");
  }
  void model(const std::string& config, const std::string& task, const std::string& name) {
    torch::manual_seed(1);
    small(config, task)->save_pretrained(scratch / name);
    levin::test::letter_tokenizer(scratch / name, /*around=*/false, levin::test::kChatTemplate);
  }

  /// What `levin finetune TASK OPTIONS` on rows says; "no error" where it has trained.
  std::string told(const std::string& task, const std::string& rows, const Words& options) {
    const std::string model = task == "mlm"                                    ? "masked"
                              : task == "lm" || task == "sft" || task == "dpo" ? "writer"
                                                                               : "reader";
    Words words{"finetune",
                task,
                "--model",
                (scratch / model).string(),
                "--data",
                put(scratch / "rows.jsonl", rows).string(),
                "--output",
                (scratch / "tuned").string(),
                "--cache-dir",
                (scratch / "cache").string(),
                "--max-steps",
                "1",
                "--default-root-dir",
                scratch.str(),
                "--accelerator",
                "cpu",
                "--enable-progress-bar",
                "false",
                "--enable-checkpointing",
                "false",
                "--logger",
                "false",
                "--max-length",
                "12"};
    put(scratch / "prompts.txt", "a\n");
    for (std::string word : options)
      words.push_back(word == "prompts.txt" ? (scratch / word).string() : word);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::testing::internal::CaptureStdout();
    const std::string error = levin::test::error_of(
        [&] { levin::tools::finetune(static_cast<int>(words.size()), arguments.data()); });
    ::testing::internal::GetCapturedStdout();
    return error;
  }
  std::string told(const std::string& task, const Words& options) {
    return told(task, rows_for(task), options);
  }

  levin::test::Scratch scratch;
};

// Given with the value that it has anyway, too: who writes it expects something of it.
TEST_F(FinetuneOptions, AnOptionOfOtherTasksIsAnErrorThatNamesThem) {
  for (const Option& option : options()) {
    for (const std::string& task : kTasks) {
      if (std::ranges::count(option.tasks, task) > 0) continue;
      EXPECT_THAT(told(task, option.words),
                  StartsWith("tools.finetune: got " + option.words[0] + ", but " + task +
                             " does not use it (it is for " + option.said + ");"))
          << task;
    }
  }
}

TEST_F(FinetuneOptions, AnOptionOfTheTaskIsTaken) {
  for (const Option& option : options()) {
    Words words = option.words;
    std::string rows = rows_for(option.tasks[0]);
    if (words[0] == "--chat-template") continue;  // of messages, below
    if (words[0] == "--packing-strategy") words.push_back("--packing");
    if (words[0] == "--recall-at")
      words.insert(words.end(), {"--val", (scratch / "rows.jsonl").string()});
    EXPECT_EQ(told(option.tasks[0], rows, words), "no error") << words[0];
  }
}

TEST_F(FinetuneOptions, AnOptionThatDoesNothingBesideTheOthersIsAnError) {
  const std::string prefix = "tools.finetune: got ";
  EXPECT_THAT(told("lm", {"--lora-r", "-3"}), StartsWith(prefix + "--lora-r -3, wanted the rank"));
  for (const Words& words : std::vector<Words>{{"--lora-alpha", "0"},
                                               {"--lora-dropout", "0"},
                                               {"--lora-target", "q_proj"},
                                               {"--use-dora"},
                                               {"--use-rslora"},
                                               {"--modules-to-save", "lm_head"}}) {
    EXPECT_THAT(told("lm", words), StartsWith(prefix + words[0] + " without --lora-r")) << words[0];
    Words beside = words;
    beside.insert(beside.end(), {"--adapter", "x"});
    EXPECT_THAT(told("lm", beside), StartsWith(prefix + words[0] + " and --adapter")) << words[0];
  }
  EXPECT_THAT(told("lm", {"--lora-r", "2", "--lora-alpha", "-1"}),
              StartsWith(prefix + "--lora-alpha -1"));
  EXPECT_THAT(told("lm", {"--lora-r", "2", "--adapter", "x"}),
              StartsWith(prefix + "--lora-r and --adapter"));
  EXPECT_THAT(told("lm", {"--sample-chat"}),
              StartsWith(prefix + "--sample-chat without --sample-prompts"));
  EXPECT_THAT(told("lm", {"--eval-batch-size", "2"}),
              StartsWith(prefix + "--eval-batch-size without --val"));
  EXPECT_THAT(told("embed", {"--recall-at", "2"}),
              StartsWith(prefix + "--recall-at without --val"));
  EXPECT_THAT(told("embed", {"--margin", "2"}),
              StartsWith(prefix + "--margin, but these rows are trained with in-batch-negatives"));
  EXPECT_THAT(told("embed", {"--objective", "cosine"}),
              StartsWith(prefix + "--objective cosine and rows without scores"));
  EXPECT_THAT(told("sft", {"--chat-template", "x"}),
              StartsWith("text.rows.options: got a chat_template"));
  EXPECT_THAT(told("lm", {"--packing-strategy", "bfd_split"}),
              StartsWith("text.rows.options: got packing_strategy bfd_split without packing"));
  EXPECT_THAT(told("classify", "{\"text\": \"a\", \"label\": \"x\"}", {}),
              HasSubstr("has only one label"));
}

/// A number that cannot be is none that is left aside.
TEST_F(FinetuneOptions, NumbersThatCannotBeAreErrors) {
  for (const Words& words : std::vector<Words>{{"--lr", "0"},
                                               {"--weight-decay", "-1"},
                                               {"--adam-beta1", "1"},
                                               {"--adam-beta2", "-0.1"},
                                               {"--adam-epsilon", "-1"},
                                               {"--max-grad-norm", "-1"},
                                               {"--warmup-steps", "-1"}}) {
    std::string name = words[0].substr(2);
    std::ranges::replace(name, '-', '_');
    EXPECT_THAT(told("lm", words), StartsWith("models.fine_tune: got " + name)) << words[0];
  }
  EXPECT_THAT(told("dpo", {"--lora-r", "2", "--beta", "0"}),
              StartsWith("models.fine_tune: got beta"));
  EXPECT_THAT(told("dpo", {"--lora-r", "2", "--label-smoothing", "0.5"}),
              StartsWith("models.fine_tune: got label_smoothing"));
}

/// Scores are learnt by their cosine: with other scores the model is another.
TEST_F(FinetuneOptions, ScoresOfPairsAreLearnt) {
  const auto trained = [&](const std::string& score) {
    EXPECT_EQ(told("embed", R"({"sentence1": "a", "sentence2": "b", "score": )" + score + "}", {}),
              "no error");
    const auto weights = levin::load_weights(scratch / "tuned" / "model.safetensors");
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const auto& [name, value] : weights.values())
      sum += weights.tensor(name).to(at::kDouble).sum();
    return sum.item<double>();
  };
  EXPECT_NE(trained("0.0"), trained("1.0"));
}

TEST_F(FinetuneOptions, TheConfigSaysWhatLabelsWere) {
  EXPECT_EQ(told("classify",
                 "{\"text\": \"a\", \"label\": 0.5}\n{\"text\": \"b\", \"label\": 1.5}\n", {}),
            "no error");
  EXPECT_THAT(levin::test::get(scratch / "tuned" / "config.json"),
              HasSubstr("\"problem_type\": \"regression\""));
}

}  // namespace
