// What rows and options cannot be, and what is said of it.
#include <gtest/gtest.h>

#include "levin/rows/rows.h"
#include "tests/rows/small_rows.h"
#include "tests/support/error_of.h"

namespace levin::text {
namespace {

using test::error_id;
using test::told_by;

constexpr const char* kText = "{\"text\": \"a\"}";
constexpr const char* kLabelled = "{\"text\": \"a\", \"label\": 0}";
constexpr const char* kChat =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";

struct RowsErrors : ::testing::Test {
  /// What making the rows says, without the path of the file.
  std::string said(const std::string& text, const Tokenizer& tokenizer, RowsOptions options = {}) {
    std::string words = told_by([&] { files.rows(text, tokenizer, std::move(options))->report(); });
    const std::string path = (files.scratch / "").string();
    for (size_t at = 0; (at = words.find(path)) != std::string::npos;) words.erase(at, path.size());
    return words;
  }
  test::RowsFiles files;
};

TEST_F(RowsErrors, OptionsThatDoNotExistOrExcludeEachOther) {
  const auto tokenizer = files.tokenizer();
  struct Case {
    RowsOptions options;
    std::string text = kText;
  };
  const std::vector<Case> cases = {
      {{.task = "chat"}},
      {{.columns = {"text"}}},
      {{.columns = {"texts=a"}}},
      {{.packing_strategy = "wrapped"}},
      {{.max_length = 0}},
      {{.max_length = 1 << 25}},
      {{.truncation_mode = "keep"}},
      {{.mlm_probability = 1.5}},
      {{.task = "mlm", .mlm_probability = 0}},
      {{.packing_strategy = "bfd_split"}},
      {{.chat_template = "x"}},
      {{.task = "sft", .chat_template = "x"}},
      {{.eos_token = "[EOS]"}, kChat},
      {{.problem_type = "regresion"}, kLabelled},
      {{.mlm_probability = 0.3}},
      {{.label_names = {"x"}}},
      {{.mask_replace_prob = 0.8, .random_replace_prob = 0.3}},
      {{.batch_size = 0}},
      {{.eval_batch_size = 0}},
      {{.train_sampling_strategy = "shuffled"}},
      {{.pad_to_multiple_of = 0}},
      {{.drop_last = true, .pad_last_batch = true}},
      {{.num_workers = -1}},
      {{.num_threads = -1}},
      {{.packing = true, .train_sampling_strategy = "group_by_length"}},
      {{.completion_only_loss = true}},
      {{.assistant_only_loss = true}},
      {{.packing = true, .packing_strategy = "bfd_split"}, kLabelled},
      {{.packing = true}, "{\"text\": \"a\", \"label\": 0.5}"},
      {{.packing = true}, R"({"prompt": "a", "chosen": "b", "rejected": "c"})"},
      {{.packing = true}, R"({"anchor": "a", "positive": "b"})"},
      {{.label_names = {"x", "x"}}, kLabelled}};
  for (const Case& each : cases) {
    RowsOptions options = each.options;
    options.num_threads += options.num_threads == 0 ? 1 : 0;
    const std::string id = error_id([&] {
      options.cache_dir = (files.scratch / "cache").string();
      rows(test::put(files.scratch / "rows.jsonl", each.text), tokenizer, options)->report();
    });
    EXPECT_EQ(id, "text.rows.options") << &each - cases.data();
  }
  EXPECT_EQ(said(kText, tokenizer, {.columns = {"txet=a"}}),
            "text.rows.options: there is no role 'txet' for the column 'a'; did you mean 'text'?");
  EXPECT_EQ(said(kText, tokenizer, {.mlm_probability = 0.3}),
            "text.rows.options: got mlm_probability = 0.3 and rows for lm, which do not use it; it "
            "is an option of mlm");
  EXPECT_EQ(
      said(kText, tokenizer, {.task = "chat"}),
      "text.rows.options: got task 'chat', wanted one of nothing, lm, mlm, sft, dpo, classify, "
      "tag, embed");
}

TEST_F(RowsErrors, ALengthThatNobodyKnows) {
  const auto folder = test::letter_tokenizer(files.scratch / "endless");
  test::put(folder / "tokenizer_config.json", R"({"pad_token": "[PAD]", "eos_token": "[EOS]"})");
  const auto tokenizer = Tokenizer::from_pretrained(folder);
  EXPECT_EQ(said(kLabelled, tokenizer, {.pad_to_max_length = true}),
            "text.rows.options: the tokenizer has no maximum length; set max_length");
  EXPECT_EQ(files.rows(kLabelled, tokenizer)->max_length(), 1);  // what is the longest
  EXPECT_EQ(said(kText, tokenizer, {.task = "mlm"}),
            "text.rows.tokenizer: the tokenizer has no mask_token, but mlm replaces tokens with "
            "it; use a tokenizer that has one");
}

TEST_F(RowsErrors, AnEndOfTextThatTheTokenizerHasNot) {
  const auto tokenizer =
      Tokenizer::from_file(test::letter_tokenizer(files.scratch / "bare") / "tokenizer.json");
  EXPECT_EQ(said(kText, tokenizer),
            "text.rows.tokenizer: the tokenizer has no eos_token, which ends each text of lm rows; "
            "set eos_token, or set it to \"\" for no token");
  EXPECT_EQ(said(kText, tokenizer, {.eos_token = "<stop>"}),
            "text.rows.tokenizer: got eos_token '<stop>', but the tokenizer has no such token");
  EXPECT_EQ(said("{\"text\": \"ab\"}", tokenizer, {.eos_token = ""}), "no error");
}

TEST_F(RowsErrors, ColumnsThatNoTaskHas) {
  const auto tokenizer = files.tokenizer();
  EXPECT_EQ(said("{\"txt\": \"a\", \"label\": 1}", tokenizer),
            "text.rows.columns: rows.jsonl, line 1: no task has the columns txt, label; rename "
            "them with the option columns, such as text=description, or set task");
  EXPECT_EQ(said(kText, tokenizer, {.task = "classify"}),
            "text.rows.columns: rows.jsonl, line 1: got the columns text, wanted text and label "
            "for classify; rename them with the option columns, such as text=description");
  EXPECT_EQ(said("{\"txt\": \"a\"}", tokenizer, {.task = "sft"}),
            "text.rows.columns: rows.jsonl, line 1: got the columns txt, wanted messages, or "
            "prompt and completion, or text for sft; rename them with the option columns, such as "
            "text=description");
}

TEST_F(RowsErrors, ARowWithoutAFieldIsNamedByItsLineWhateverThreadFoundIt) {
  const auto tokenizer = files.tokenizer();
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += i == 1717 || i > 2000 ? "{\"txt\": \"a\"}\n" : "{\"text\": \"a\"}\n";
  }
  EXPECT_EQ(
      said(text, tokenizer),
      "data.records.field: rows.jsonl, line 1718: the field 'text' is missing; the row has txt");
  EXPECT_EQ(said("{\"text\": \"a\"}\n{\"text\": 5}\n", tokenizer),
            "data.records.field: rows.jsonl, line 2: 'text' is 5, wanted a string");
  EXPECT_EQ(said("{\"text\": \"a\"}\n{\"text\": \"\xff\"}\n", tokenizer).substr(0, 28),
            "data.utf8: rows.jsonl, line ");
  EXPECT_EQ(said("{\"text\": \"a\"}\n{\n", tokenizer).substr(0, 37),
            "data.json_lines: rows.jsonl, line 2: ");
}

TEST_F(RowsErrors, FilesWithNothingToLearn) {
  const auto tokenizer = files.tokenizer();
  EXPECT_EQ(said("\n", tokenizer), "text.rows.empty: rows.jsonl has no rows");
  EXPECT_EQ(said("{\"text\": \"\"}\n{\"text\": \"\"}", tokenizer, {.eos_token = ""}),
            "text.rows.empty: rows.jsonl: none of 2 rows has a token for the loss; raise "
            "max_length, or check which tokens the loss counts");
}

TEST_F(RowsErrors, LabelsThatDoNotFit) {
  const auto tokenizer = files.tokenizer();
  const std::string first = "{\"text\": \"a\", \"label\": 1}\n";
  const std::string at = "text.rows.label: rows.jsonl, line 2: ";
  EXPECT_EQ(said(first + "{\"text\": \"a\", \"label\": \"x\"}", tokenizer),
            at + "the label is a string, wanted an integer as in earlier rows");
  EXPECT_EQ(said(first + "{\"text\": \"a\", \"label\": -1}", tokenizer),
            at + "the label is -1, wanted 0 to 16777215");
  EXPECT_EQ(said(first + "{\"text\": \"a\", \"label\": 3}", tokenizer, {.label_names = {"x", "y"}}),
            at + "the label is 3, wanted 0 to 1");
  EXPECT_EQ(
      said(first + "{\"text\": \"a\", \"label\": \"yy\"}", tokenizer, {.label_names = {"xx", "y"}}),
      at + "got the label 'yy', which is not one of the 2 known labels; did you mean 'y'?");
  EXPECT_EQ(
      said("{\"text\": \"a\", \"label\": [1, 0]}\n{\"text\": \"a\", \"label\": [1]}", tokenizer),
      at + "the label has 1 numbers, wanted 2 as in earlier rows");
  EXPECT_EQ(
      said("{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"a\", \"label\": 0.5}", tokenizer),
      at + "the label is a float, wanted a string as in earlier rows");
}

TEST_F(RowsErrors, LabelsOfBothKindsOfNumbersAreValuesWhereTheUserSaysSo) {
  const auto tokenizer = files.tokenizer();
  const auto two = [](const char* a, const char* b) {
    return std::string("{\"text\": \"a\", \"label\": ") + a +
           "}\n{\"text\": \"b\", \"label\": " + b + "}";
  };
  const std::string at = "text.rows.label: rows.jsonl, line 2: the label is ";
  const std::string advice =
      "; set problem_type to regression if labels are values, or write classes as strings";
  EXPECT_EQ(said(two("1", "0.5"), tokenizer),
            at + "a float, but an integer in earlier rows" + advice);
  EXPECT_EQ(said(two("0.5", "1"), tokenizer),
            at + "an integer, but a float in earlier rows" + advice);
  EXPECT_EQ(
      said(two("1", "0.5"), tokenizer, {.problem_type = "single_label_classification"}),
      at + "a float, wanted a string or an integer for problem_type = single_label_classification");
  EXPECT_EQ(said(two("\"x\"", "1"), tokenizer, {.problem_type = "regression"}),
            "text.rows.label: rows.jsonl, line 1: the label is a string, wanted a number for "
            "problem_type = regression");
  EXPECT_EQ(said(two("1", "0"), tokenizer, {.problem_type = "multi_label_classification"}),
            "text.rows.label: rows.jsonl, line 1: the label is an integer, wanted a list of "
            "numbers for problem_type = multi_label_classification");
}

TEST_F(RowsErrors, RowsWhosePartsDoNotGoTogether) {
  const auto tokenizer = files.tokenizer();
  const std::string at = "text.rows.row: rows.jsonl, line 1: ";
  EXPECT_EQ(said("{\"tokens\": [\"a\", \"b\"], \"tags\": [1]}", tokenizer),
            at + "got 2 'tokens' and 1 'tags', wanted the same number");
  EXPECT_EQ(said("{\"tokens\": [\"a\"], \"tags\": [0.5]}", tokenizer),
            at + "a tag is 0.5, wanted a string or an integer");
  EXPECT_EQ(said("{\"tokens\": [\"a\"], \"tags\": 1}", tokenizer),
            at + "'tags' is 1, wanted a list of tags");
  EXPECT_EQ(said("{\"messages\": [1]}", tokenizer),
            at + "'messages' is [1], wanted a list of messages");
  EXPECT_EQ(said("{\"messages\": []}", tokenizer),
            at + "'messages' is [], wanted a list of messages");
}

TEST_F(RowsErrors, AssistantOnlyLossNeedsATemplateThatMarksIt) {
  const std::string marked =
      "assistant_only_loss needs a chat template that puts {% generation %} and {% endgeneration "
      "%} around assistant text, but this one does not; set chat_template to one that does";
  const auto plain = files.tokenizer(false, "{% for m in messages %}{{ m.content }} {% endfor %}");
  EXPECT_EQ(said(kChat, plain, {.assistant_only_loss = true}), "text.rows.generation: " + marked);
  EXPECT_EQ(said(kChat, plain, {.assistant_only_loss = true, .chat_template = test::kChatTemplate}),
            "no error");
  const auto tokenizer = files.tokenizer();
  EXPECT_EQ(
      said(R"({"messages": [{"role": "user", "content": "a"}]})", tokenizer,
           {.assistant_only_loss = true}),
      "text.rows.generation: rows.jsonl, line 1: the chat template puts no assistant text between "
      "{% generation %} and {% endgeneration %}, so the row has nothing for assistant_only_loss");
}

TEST_F(RowsErrors, WhatATemplateRefusesHasItsLine) {
  const auto tokenizer = files.tokenizer(
      false, "{% if messages|length > 1 %}{{ raise_exception('one only') }}{% endif %}ab");
  EXPECT_EQ(
      said(std::string("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n") + kChat,
           tokenizer)
          .substr(0, 43),
      "text.template.refused: rows.jsonl, line 2: ");
}

TEST_F(RowsErrors, ThereIsNoValidationToTellOf) {
  const auto tokenizer = files.tokenizer();
  const auto rows = files.rows(kText, tokenizer);
  EXPECT_FALSE(rows->val_dataloader().has_value());
  EXPECT_EQ(rows->validation_dataset(), nullptr);
  EXPECT_EQ(error_id([&] { rows->validation_report(); }), "text.rows.options");
  EXPECT_EQ(error_id([&] { rows->train_dataset()->get(std::vector<int64_t>{1}); }),
            "data.samples.index");
}

}  // namespace
}  // namespace levin::text
