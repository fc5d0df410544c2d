// What a row of each kind becomes, by numbers.
#include "levin/rows/rows.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/rows/small_rows.h"
#include "tests/support/error_of.h"

namespace levin::text {
namespace {

using test::kNot;
using test::Numbers;
using test::rows_of;
using test::RowsFiles;
using test::Table;

struct RowsTest : ::testing::Test {
  std::string place(int64_t line) const {
    return (files.scratch / "rows.jsonl").string() + ", line " + std::to_string(line);
  }
  RowsFiles files;
};

TEST_F(RowsTest, TextsEndWithTheEndOfText) {
  const auto tokenizer = files.tokenizer();
  const auto rows =
      files.rows("{\"text\": \"ab c\"}\n{\"text\": \"d[EOS]\"}\n", tokenizer, {.batch_size = 2});
  EXPECT_EQ(rows->task(), "lm");
  EXPECT_EQ(rows->max_length(), 1024);
  EXPECT_EQ(rows->num_labels(), 0);
  const Batch batch = files.all(*rows);
  EXPECT_EQ(rows_of(batch["input_ids"]), (Table{{1, 2, 3, 28}, {4, 28, 27, 27}}));
  EXPECT_EQ(rows_of(batch["attention_mask"]), (Table{{1, 1, 1, 1}, {1, 1, 0, 0}}));
  EXPECT_EQ(rows_of(batch["labels"]), (Table{{1, 2, 3, 28}, {4, 28, kNot, kNot}}));
  const auto none = files.rows("{\"text\": \"ab\"}\n", tokenizer, {.eos_token = ""});
  EXPECT_EQ(rows_of(files.all(*none)["input_ids"]), (Table{{1, 2}}));
  const auto other = files.rows("{\"text\": \"ab\"}\n", tokenizer, {.eos_token = "<end>"});
  EXPECT_EQ(rows_of(files.all(*other)["input_ids"]), (Table{{1, 2, 34}}));
}

TEST_F(RowsTest, OfPromptsAndCompletionsTheCompletionCounts) {
  const auto tokenizer = files.tokenizer();
  const std::string text = R"({"prompt": "ab", "completion": "cd"})";
  const auto rows = files.rows(text, tokenizer);
  EXPECT_EQ(rows->task(), "sft");
  const Batch batch = files.all(*rows);
  EXPECT_EQ(rows_of(batch["input_ids"]), (Table{{1, 2, 3, 4, 28}}));
  EXPECT_EQ(rows_of(batch["labels"]), (Table{{kNot, kNot, 3, 4, 28}}));
  const auto whole = files.rows(text, tokenizer, {.completion_only_loss = false});
  EXPECT_EQ(rows_of(files.all(*whole)["labels"]), (Table{{1, 2, 3, 4, 28}}));
}

TEST_F(RowsTest, ChatsAreWrittenByTheTemplate) {
  const auto tokenizer = files.tokenizer();
  const std::string text =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]})"
      "\n"
      R"({"conversations": [{"from": "user", "value": "a"}, {"from": "assistant", "value": "bc"}]})";
  const Numbers ids = {32, 1, 34, 33, 2, 3, 34};
  const auto rows = files.rows(text.substr(0, text.find('\n')), tokenizer);
  EXPECT_EQ(rows->task(), "sft");
  EXPECT_EQ(rows_of(files.all(*rows)["input_ids"]), (Table{ids}));
  EXPECT_EQ(rows_of(files.all(*rows)["labels"]), (Table{ids}));
  const auto renamed = files.rows(text.substr(text.find('\n')), tokenizer);
  EXPECT_EQ(rows_of(files.all(*renamed)["input_ids"]), (Table{ids}));
  const auto assistant =
      files.rows(text.substr(0, text.find('\n')), tokenizer, {.assistant_only_loss = true});
  EXPECT_EQ(rows_of(files.all(*assistant)["labels"]), (Table{{kNot, kNot, kNot, kNot, 2, 3, 34}}));
}

TEST_F(RowsTest, PromptsAndCompletionsMayBeChats) {
  const auto tokenizer = files.tokenizer();
  const auto rows = files.rows(R"({"prompt": [{"role": "user", "content": "a"}], )"
                               R"("completion": [{"role": "assistant", "content": "b"}]})",
                               tokenizer);
  const Batch batch = files.all(*rows);
  EXPECT_EQ(rows_of(batch["input_ids"]), (Table{{32, 1, 34, 33, 2, 34}}));
  EXPECT_EQ(rows_of(batch["labels"]), (Table{{kNot, kNot, kNot, kNot, 2, 34}}));
}

TEST_F(RowsTest, ToolsAndVariablesReachTheTemplate) {
  const auto tokenizer = files.tokenizer(
      false, "{{ tools[0].name }}{{ extra }}{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto rows = files.rows(
      R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "x"}],)"
      R"( "chat_template_kwargs": {"extra": "yz"}})"
      "\n"
      R"({"messages": [{"role": "user", "content": "b"}], "tools": "[{\"name\": \"w\"}]"})",
      tokenizer);
  EXPECT_EQ(rows_of(files.all(*rows)["input_ids"]), (Table{{24, 25, 26, 1}, {23, 2, 27, 27}}));
}

TEST_F(RowsTest, PreferencesStandBesideEachOther) {
  const auto tokenizer = files.tokenizer();
  const auto rows = files.rows(R"({"prompt": "a", "chosen": "bc", "rejected": "d"})", tokenizer);
  EXPECT_EQ(rows->task(), "dpo");
  const Batch batch = files.all(*rows);
  EXPECT_EQ(batch["input_ids"].sizes(), at::IntArrayRef({1, 2, 4}));
  EXPECT_EQ(rows_of(batch["input_ids"]), (Table{{1, 2, 3, 28}, {1, 4, 28, 27}}));
  EXPECT_EQ(rows_of(batch["attention_mask"]), (Table{{1, 1, 1, 1}, {1, 1, 1, 0}}));
  EXPECT_EQ(rows_of(batch["labels"]), (Table{{kNot, 2, 3, 28}, {kNot, 4, 28, kNot}}));
}

TEST_F(RowsTest, APromptIsWhatBothPreferencesBeginWith) {
  const auto tokenizer = files.tokenizer();
  const auto texts = files.rows(R"({"chosen": "a b c", "rejected": "a b d"})", tokenizer);
  EXPECT_EQ(rows_of(files.all(*texts)["labels"]),
            (Table{{kNot, kNot, 3, 28}, {kNot, kNot, 4, 28}}));
  const auto chats = files.rows(
      R"({"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],)"
      R"( "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "cd"}]})",
      tokenizer);
  EXPECT_EQ(rows_of(files.all(*chats)["input_ids"]),
            (Table{{32, 1, 34, 33, 2, 34, 27}, {32, 1, 34, 33, 3, 4, 34}}));
  EXPECT_EQ(rows_of(files.all(*chats)["labels"]),
            (Table{{kNot, kNot, kNot, kNot, 2, 34, kNot}, {kNot, kNot, kNot, kNot, 3, 4, 34}}));
  const auto apart = files.rows(R"({"chosen": [{"role": "user", "content": "a"}],)"
                                R"( "rejected": [{"role": "user", "content": "b"}]})",
                                tokenizer);
  EXPECT_EQ(test::told_by([&] { apart->report(); }),
            "text.rows.row: " + place(1) +
                ": chosen and rejected begin with different messages, so there is no prompt; add a "
                "prompt column");
}

TEST_F(RowsTest, TextsWithLabelsAreClassifiedByTheirSortedNames) {
  const auto tokenizer = files.tokenizer(/*around=*/true);
  const auto rows = files.rows(
      "{\"text\": \"a\", \"label\": \"no\"}\n{\"text\": \"bc\", \"label\": \"maybe\"}\n"
      "{\"text\": \"d\", \"label\": \"no\"}\n",
      tokenizer);
  EXPECT_EQ(rows->task(), "classify");
  EXPECT_EQ(rows->label_names(), (std::vector<std::string>{"maybe", "no"}));
  EXPECT_EQ(rows->num_labels(), 2);
  EXPECT_EQ(rows->max_length(), 12);
  const Batch batch = files.all(*rows);
  EXPECT_EQ(rows_of(batch["input_ids"]), (Table{{30, 1, 31, 27}, {30, 2, 3, 31}, {30, 4, 31, 27}}));
  EXPECT_EQ(rows_of(batch["labels"]), (Table{{1}, {0}, {1}}));
  EXPECT_FALSE(batch.contains("token_type_ids"));
}

TEST_F(RowsTest, PairsHaveTypesAndAreCutAtTheLongerOne) {
  const auto tokenizer = files.tokenizer(/*around=*/true);
  const auto rows = files.rows(R"({"sentence1": "abcdefgh", "sentence2": "xy", "label": 3})",
                               tokenizer, {.max_length = 8});
  EXPECT_EQ(rows->task(), "classify");
  EXPECT_EQ(rows->num_labels(), 4);
  EXPECT_TRUE(rows->label_names().empty());
  const Batch batch = files.all(*rows);
  EXPECT_EQ(rows_of(batch["input_ids"]), (Table{{30, 1, 2, 3, 31, 24, 25, 31}}));
  EXPECT_EQ(rows_of(batch["token_type_ids"]), (Table{{0, 0, 0, 0, 0, 1, 1, 1}}));
  EXPECT_EQ(rows_of(batch["labels"]), (Table{{3}}));
  EXPECT_EQ(rows->report().truncated, 1);
}

TEST_F(RowsTest, LabelsMayBeNumbersOrListsOfThem) {
  const auto tokenizer = files.tokenizer(true);
  const auto one = files.rows("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": 0.25}",
                              tokenizer, {.problem_type = "regression"});
  EXPECT_EQ(one->problem_type(), "regression");
  const at::Tensor numbers = files.all(*one)["labels"];
  EXPECT_EQ(one->num_labels(), 1);
  EXPECT_EQ(numbers.scalar_type(), at::kFloat);
  EXPECT_TRUE(numbers.equal(at::tensor({1.0F, 0.25F})));
  const auto points =
      files.rows("{\"text\": \"a\", \"label\": 1.0}\n{\"text\": \"b\", \"label\": 2.0}", tokenizer);
  EXPECT_EQ(points->problem_type(), "regression");
  const auto classes =
      files.rows("{\"text\": \"a\", \"label\": 1.0}\n{\"text\": \"b\", \"label\": 2}", tokenizer,
                 {.problem_type = "single_label_classification"});
  EXPECT_EQ(rows_of(files.all(*classes)["labels"]), (Table{{1}, {2}}));
  const auto whole = files.rows("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": 3}",
                                tokenizer, {.problem_type = "regression"});
  EXPECT_TRUE(files.all(*whole)["labels"].equal(at::tensor({1.0F, 3.0F})));
  const auto several = files.rows(
      "{\"text\": \"a\", \"label\": [1, 0, 1]}\n{\"text\": \"b\", \"label\": [0, 0, 0.5]}",
      tokenizer);
  EXPECT_EQ(several->num_labels(), 3);
  EXPECT_EQ(several->problem_type(), "multi_label_classification");
  EXPECT_TRUE(files.all(*several)["labels"].equal(
      at::tensor({1.0F, 0.0F, 1.0F, 0.0F, 0.0F, 0.5F}).view({2, 3})));
}

TEST_F(RowsTest, WordsHaveTheirTagAtTheirFirstToken) {
  const auto tokenizer = files.tokenizer(true);
  const auto rows = files.rows(
      "{\"tokens\": [\"ab\", \"c\", \"def\"], \"ner_tags\": [\"B\", \"O\", \"I\"]}\n"
      "{\"tokens\": [\"xyz\"], \"ner_tags\": [\"A\"]}",
      tokenizer, {.max_length = 6});
  EXPECT_EQ(rows->task(), "tag");
  EXPECT_EQ(rows->label_names(), (std::vector<std::string>{"A", "B", "I", "O"}));
  const Batch batch = files.all(*rows);
  EXPECT_EQ(rows_of(batch["input_ids"]), (Table{{30, 1, 2, 3, 4, 31}, {30, 24, 25, 26, 31, 27}}));
  EXPECT_EQ(rows_of(batch["labels"]),
            (Table{{kNot, 1, kNot, 3, 2, kNot}, {kNot, 0, kNot, kNot, kNot, kNot}}));
  const auto by_number = files.rows("{\"tokens\": [\"a\", \"b\"], \"tags\": [4, -100]}", tokenizer);
  EXPECT_EQ(rows_of(files.all(*by_number)["labels"]), (Table{{kNot, 4, kNot, kNot}}));
  EXPECT_EQ(by_number->num_labels(), 5);
}

TEST_F(RowsTest, TextsThatBelongTogetherAreEmbedded) {
  const auto tokenizer = files.tokenizer(true);
  const auto rows = files.rows(
      "{\"anchor\": \"a\", \"positive\": \"b\", \"negative_1\": \"c\", \"negative_2\": \"de\"}",
      tokenizer);
  EXPECT_EQ(rows->task(), "embed");
  const Batch batch = files.all(*rows);
  EXPECT_EQ(batch["input_ids"].sizes(), at::IntArrayRef({1, 4, 4}));
  EXPECT_EQ(rows_of(batch["input_ids"]),
            (Table{{30, 1, 31, 27}, {30, 2, 31, 27}, {30, 3, 31, 27}, {30, 4, 5, 31}}));
  EXPECT_FALSE(batch.contains("labels"));
  const auto list = files.rows(
      "{\"query\": \"a\", \"answer\": \"b\", \"negatives\": [\"c\"]}\n"
      "{\"query\": \"a\", \"answer\": \"b\", \"negatives\": []}",
      tokenizer);
  EXPECT_EQ(test::told_by([&] { list->report(); }),
            "text.rows.row: " + place(2) + ": got 0 negatives, wanted 1 as in the first row");
  const auto scored =
      files.rows("{\"sentence1\": \"a\", \"sentence2\": \"b\", \"score\": 0.5}", tokenizer);
  EXPECT_EQ(scored->task(), "embed");
  EXPECT_EQ(scored->num_labels(), 0);
  EXPECT_TRUE(files.all(*scored)["labels"].equal(at::tensor({0.5F})));
}

TEST_F(RowsTest, ColumnsMayHaveOtherNames) {
  const auto tokenizer = files.tokenizer(true);
  const auto rows = files.rows("{\"Description\": \"a\", \"Section\": \"x\"}", tokenizer,
                               {.columns = {"text=Description", "label=Section"}});
  EXPECT_EQ(rows->task(), "classify");
  EXPECT_EQ(rows->label_names(), (std::vector<std::string>{"x"}));
}

TEST_F(RowsTest, CsvHasLabelsOfEitherKind) {
  const auto tokenizer = files.tokenizer(true);
  const auto of = [&](const std::string& text) {
    return rows(test::put(files.scratch / "rows.csv", text), tokenizer, files.with_cache({}));
  };
  const auto classes = of("text,label\na,10\n\"b, c\",2\n");
  EXPECT_TRUE(classes->label_names().empty());
  EXPECT_EQ(classes->num_labels(), 11);
  EXPECT_EQ(rows_of(files.all(*classes)["labels"]), (Table{{10}, {2}}));
  EXPECT_TRUE(
      files.all(*of("text,label\na,1.0\nb,0.5\n"))["labels"].equal(at::tensor({1.0F, 0.5F})));
  const std::string mixed = "text,label\na,1\nb,0.5\n";
  EXPECT_EQ(test::told_by([&] { of(mixed)->report(); }),
            "text.rows.label: labels are floats ('0.5') and integers ('1'); set problem_type to "
            "regression if they are values, or to single_label_classification if they are classes");
  const auto as = [&](const char* problem) {
    return rows(test::put(files.scratch / "rows.csv", mixed), tokenizer,
                files.with_cache({.problem_type = problem}));
  };
  EXPECT_TRUE(files.all(*as("regression"))["labels"].equal(at::tensor({1.0F, 0.5F})));
  EXPECT_EQ(as("single_label_classification")->label_names(),
            (std::vector<std::string>{"0.5", "1"}));
  EXPECT_EQ(of("text,label\na,10\nb,x\n")->label_names(), (std::vector<std::string>{"10", "x"}));
}

TEST_F(RowsTest, WhatIsTooLongIsCutAtOneEndOrIsAnError) {
  const auto tokenizer = files.tokenizer();
  const std::string text =
      "{\"prompt\": \"ab\", \"completion\": \"cde\"}\n"
      "{\"prompt\": \"abcd\", \"completion\": \"e\"}\n";
  const auto start = files.rows(text, tokenizer, {.max_length = 4});
  EXPECT_EQ(rows_of(files.all(*start)["labels"]), (Table{{kNot, kNot, 3, 4}}));
  EXPECT_EQ(start->report().truncated, 2);
  EXPECT_EQ(start->report().dropped, 1);
  EXPECT_EQ(start->report().rows, 2);
  EXPECT_EQ(start->report().samples, 1);
  EXPECT_EQ(start->report().tokens, 4);
  EXPECT_EQ(start->report().counted, 2);
  const auto end = files.rows(text, tokenizer, {.max_length = 4, .truncation_mode = "keep_end"});
  EXPECT_EQ(rows_of(files.all(*end)["input_ids"]), (Table{{3, 4, 5, 28}, {3, 4, 5, 28}}));
  EXPECT_EQ(rows_of(files.all(*end)["labels"]), (Table{{3, 4, 5, 28}, {kNot, kNot, 5, 28}}));
  const auto error = files.rows(text, tokenizer, {.max_length = 4, .truncation_mode = "error"});
  EXPECT_EQ(
      test::told_by([&] { error->report(); }),
      "text.rows.length: " + place(1) +
          ": the row has 6 tokens, wanted at most 4; raise max_length, shorten the row, or set "
          "truncation_mode to keep_start");
}

TEST_F(RowsTest, PreferencesWithoutRoomForAnAnswerAreLeftOut) {
  const auto tokenizer = files.tokenizer();
  const auto rows = files.rows(
      "{\"prompt\": \"abcd\", \"chosen\": \"e\", \"rejected\": \"f\"}\n"
      "{\"prompt\": \"a\", \"chosen\": \"bcdef\", \"rejected\": \"f\"}\n",
      tokenizer, {.max_length = 4});
  EXPECT_EQ(rows_of(files.all(*rows)["input_ids"]), (Table{{1, 2, 3, 4}, {1, 6, 28, 27}}));
  EXPECT_EQ(rows->report().dropped, 1);
}

TEST_F(RowsTest, ValidationHasTheLabelsOfTraining) {
  const auto tokenizer = files.tokenizer(true);
  const std::string train =
      "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"y\"}\n";
  const auto with = [&](const std::string& text) {
    test::put(files.scratch / "val.jsonl", text);
    return files.rows(
        train, tokenizer,
        {.validation_file = (files.scratch / "val.jsonl").string(), .eval_batch_size = 3});
  };
  const auto rows = with("{\"text\": \"c\", \"label\": \"y\"}\n");
  auto loader = *rows->val_dataloader();
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(rows_of(batch["labels"]), (Table{{1}}));
  EXPECT_EQ(rows_of(batch["input_ids"]), (Table{{30, 3, 31}}));
  EXPECT_EQ(loader.options().batch_size, 3);
  EXPECT_EQ(
      test::told_by([&] { with("{\"text\": \"c\", \"label\": \"z\"}\n")->validation_report(); }),
      "text.rows.label: " + (files.scratch / "val.jsonl").string() +
          ", line 1: got the label 'z', which is not one of the 2 known labels; did you mean 'x'?");
}

TEST_F(RowsTest, WidthsAreMultiplesOrAlwaysTheLongest) {
  const auto tokenizer = files.tokenizer();
  const std::string text = "{\"text\": \"abc\"}\n{\"text\": \"a\"}\n";
  EXPECT_EQ(files.all(*files.rows(text, tokenizer, {.pad_to_multiple_of = 8}))["labels"].size(1),
            8);
  const auto fixed = files.rows(text, tokenizer, {.max_length = 6, .pad_to_max_length = true});
  EXPECT_EQ(rows_of(fixed->train_dataset()->get(Numbers{1})["input_ids"]),
            (Table{{1, 28, 27, 27, 27, 27}}));
}

TEST_F(RowsTest, OptionsAreFlags) {
  const char* line[] = {"x",
                        "--task",
                        "classify",
                        "--columns",
                        "text=a,label=b",
                        "--packing",
                        "--max-length",
                        "32",
                        "--completion-only-loss",
                        "false",
                        "--eos-token",
                        "e"};
  RowsOptions options;
  const auto text = levin::detail::read_options(
      std::ssize(line), line, [&](FieldVisitor& field) { options.fields(field); });
  EXPECT_FALSE(text.has_value());
  EXPECT_EQ(options.task, "classify");
  EXPECT_EQ(options.columns, (std::vector<std::string>{"text=a", "label=b"}));
  EXPECT_TRUE(options.packing);
  EXPECT_EQ(options.max_length, 32);
  EXPECT_EQ(options.completion_only_loss, false);
  EXPECT_EQ(options.eos_token, "e");
}

TEST_F(RowsTest, APaddingSideOnTheLeftIsForEncodersAlone) {
  const auto folder = test::letter_tokenizer(files.scratch / "left", true);
  test::put(folder / "tokenizer_config.json",
            R"({"pad_token": "[PAD]", "eos_token": "[EOS]", "padding_side": "left"})");
  const auto tokenizer = Tokenizer::from_pretrained(folder);
  const auto labelled =
      files.rows("{\"text\": \"ab\", \"label\": 0}\n{\"text\": \"c\", \"label\": 0}", tokenizer);
  EXPECT_EQ(rows_of(files.all(*labelled)["input_ids"]), (Table{{30, 1, 2, 31}, {27, 30, 3, 31}}));
  EXPECT_EQ(rows_of(files.all(*labelled)["attention_mask"]), (Table{{1, 1, 1, 1}, {0, 1, 1, 1}}));
  const auto text = files.rows("{\"text\": \"ab\"}\n{\"text\": \"c\"}", tokenizer);
  EXPECT_EQ(rows_of(files.all(*text)["attention_mask"]), (Table{{1, 1, 1, 1, 1}, {1, 1, 1, 1, 0}}));
}

}  // namespace
}  // namespace levin::text
