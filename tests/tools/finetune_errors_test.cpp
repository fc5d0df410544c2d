// What goes wrong at `levin finetune`, and what is said of it: names, files and lines that help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/models/lora.h"
#include "tests/models/small_models.h"
#include "tests/rows/small_rows.h"
#include "tools/command.h"

namespace {

namespace fs = std::filesystem;
using levin::test::put;
using levin::test::small;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kPlainTemplate = "{% for m in messages %}{{ m.content }} {% endfor %}";
constexpr const char* kChats =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";

class FinetuneErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    model(levin::test::small_qwen3(), "text-generation", "writer");
    model(levin::test::small_bert(), "text-classification", "reader");
  }

  void model(const std::string& config, const std::string& task, const std::string& name) {
    torch::manual_seed(1);
    small(config, task)->save_pretrained(scratch / name);
    levin::test::letter_tokenizer(scratch / name, /*around=*/false, kPlainTemplate);
  }

  /// What `levin finetune TASK --model MODEL --data rows.jsonl OPTIONS` says of these rows.
  std::string told(const std::string& task, const std::string& model, const std::string& rows,
                   const std::vector<std::string>& options) {
    const std::string file = put(scratch / "rows.jsonl", rows).string();
    std::vector<std::string> words{"finetune",
                                   task,
                                   "--model",
                                   (scratch / model).string(),
                                   "--data",
                                   file,
                                   "--output",
                                   (scratch / "tuned").string(),
                                   "--cache-dir",
                                   (scratch / "cache").string(),
                                   "--max-steps",
                                   "1",
                                   "--default-root-dir",
                                   scratch.str()};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    try {
      levin::tools::finetune(static_cast<int>(words.size()), arguments.data());
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }

  levin::test::Scratch scratch;
};

TEST_F(FinetuneErrors, AModuleThatIsNotThereHasItsNearestNamed) {
  EXPECT_THAT(
      told("lm", "writer", "{\"text\": \"a b\"}", {"--lora-r", "2", "--lora-target", "q_prj"}),
      AllOf(StartsWith("models.lora.target: no linear layer is called 'q_prj'"),
            HasSubstr("nearest is q_proj")));
}

// The tool says what came after the Trainer, which knows where, is gone.
TEST_F(FinetuneErrors, AnErrorOfAStepSaysAtWhichBatchItCame) {
  const std::string rows = "{\"text\": \"a b\"}\n{\"text\": \"b a\"}";
  EXPECT_THAT(told("lm", "writer", rows,
                   {"--lr", "1e38", "--max-steps", "4", "--batch-size", "1", "--detect-anomaly"}),
              AllOf(HasSubstr("nan values"), HasSubstr("[epoch 0, batch 1]")));
}

// A model of somebody else's, and its tokenizer, are not replaced before somebody says so.
TEST_F(FinetuneErrors, AnOutputThatLevinHasNotWrittenIsRefused) {
  const auto tuned = [&](const std::vector<std::string>& more) {
    return told("lm", "writer", "{\"text\": \"a b\"}", more);
  };
  fs::create_directories(scratch / "tuned");
  put(scratch / "tuned/config.json", "somebody's");
  EXPECT_THAT(tuned({}), AllOf(StartsWith("tools.finetune: --output: "),
                               HasSubstr("holds 'config.json'"), HasSubstr("add --overwrite")));
  EXPECT_EQ(levin::test::get(scratch / "tuned/config.json"), "somebody's");
  put(scratch / "tuned/levin.json", "{}");
  EXPECT_THAT(tuned({}), StartsWith("tools.finetune: --output: "));
  EXPECT_EQ(tuned({"--overwrite"}), "no error");
  EXPECT_NE(levin::test::get(scratch / "tuned/config.json"), "somebody's");
  EXPECT_EQ(tuned({}), "no error");  // its own now
  EXPECT_THAT(tuned({"--output", (scratch / "rows.jsonl").string()}), HasSubstr("is no folder"));
}

TEST_F(FinetuneErrors, AnAdapterOfAnotherBaseIsRefused) {
  std::string wider = levin::test::small_qwen3();
  wider.replace(wider.find("\"hidden_size\": 24"), 17, "\"hidden_size\": 32");
  const auto other = small(wider, "text-generation");
  levin::lora::add(other);
  levin::lora::save(*other, scratch / "adapter");
  EXPECT_THAT(
      told("lm", "writer", "{\"text\": \"a b\"}", {"--adapter", (scratch / "adapter").string()}),
      AllOf(StartsWith("models.lora.weights: "), HasSubstr("belongs to another model")));
}

TEST_F(FinetuneErrors, ALabelOutsideOfTheHeadHasItsLine) {
  EXPECT_THAT(
      told("classify", "reader",
           "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"z\"}\n",
           {"--label-names", "x,y"}),
      AllOf(StartsWith("text.rows.label: "), HasSubstr("rows.jsonl, line 2"), HasSubstr("'z'")));
}

TEST_F(FinetuneErrors, ARowWithoutAFieldHasItsFileAndLine) {
  EXPECT_THAT(told("lm", "writer", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"txt\": \"c\"}\n", {}),
              AllOf(StartsWith("data.records.field: "), HasSubstr("rows.jsonl, line 3"),
                    HasSubstr("the field 'text' is missing; the row has txt")));
}

TEST_F(FinetuneErrors, ADocumentLongerThanARowHasItsLine) {
  EXPECT_THAT(told("lm", "writer", "{\"text\": \"a b\"}\n{\"text\": \"a b c d e f g h\"}\n",
                   {"--max-length", "6", "--truncation-mode", "error", "--packing"}),
              AllOf(StartsWith("text.rows.length: "), HasSubstr("rows.jsonl, line 2")));
}

TEST_F(FinetuneErrors, ATemplateWithoutGenerationMarksIsRefusedForTheAssistantsLoss) {
  EXPECT_THAT(told("sft", "writer", kChats, {"--assistant-only-loss"}),
              AllOf(StartsWith("text.rows.generation: "), HasSubstr("{% generation %}")));
}

}  // namespace
