// What is told of a file's rows: always, of every task, and of a file that was tokenized before too. Rows of which
// nothing counts are never learnt from in silence.
#include <gtest/gtest.h>

#include "levin/base/log_sink.h"
#include "levin/data/loader.h"
#include "tests/rows/small_rows.h"
#include "tests/support/error_of.h"

namespace levin::text {
namespace {

struct RowsReportTest : ::testing::Test {
  /// The lines about rows that making them gives, without their "rows: ".
  std::vector<std::string> told(const std::string& text, const RowsOptions& options) {
    std::vector<std::string> lines;
    const auto before = log::set_sink([&](log::Level level, std::string_view line) {
      if (!line.starts_with("rows: ")) return;
      lines.push_back((level == log::Level::kWarn ? "warning: " : "") +
                      std::string(line.substr(6)));
    });
    error = test::told_by([&] { report = files.rows(text, tokenizer, options)->report(); });
    log::set_sink(before);
    return lines;
  }
  /// As made and as found in the cache: the same but for that.
  std::string told_twice(const std::string& text, const RowsOptions& options) {
    const auto first = told(text, options);
    EXPECT_EQ(first.size(), 1U) << error;
    const RowsReport made = report;
    const auto again = told(text, options);
    EXPECT_EQ(again.size(), 1U) << error;
    EXPECT_TRUE(report.from_cache);
    EXPECT_EQ(report.counted, made.counted);
    EXPECT_EQ(report.idle, made.idle);
    if (first.size() != 1 || again.size() != 1) return error;
    std::string wanted = first[0];
    wanted.insert(wanted.find(" read") + 5, " (tokenized before)");
    EXPECT_EQ(again[0], wanted);
    return first[0];
  }

  test::RowsFiles files;
  const Tokenizer tokenizer = files.tokenizer();
  RowsReport report;
  std::string error;
};

constexpr const char* kTwoPrompts =
    "{\"prompt\": \"ab\", \"completion\": \"cde\"}\n{\"prompt\": \"abcd\", \"completion\": "
    "\"e\"}\n";

TEST_F(RowsReportTest, OneLineTellsOfTheRowsOfEveryTask) {
  const auto line = [&](const std::string& text, const RowsOptions& options = {}) {
    return told_twice(text, options);
  };
  EXPECT_EQ(line("{\"text\": \"ab\"}\n{\"text\": \"c\"}\n"),
            "rows.jsonl: 2 rows read, 0 truncated, 0 dropped, 3 tokens in the loss");
  EXPECT_EQ(line("{\"text\": \"ab\"}\n{\"text\": \"\"}\n", {.task = "mlm"}),
            "warning: rows.jsonl: 2 rows read, 0 truncated, 1 dropped, 2 tokens in the loss");
  EXPECT_EQ(line(kTwoPrompts, {.max_length = 4}),
            "warning: rows.jsonl: 2 rows read, 2 truncated, 1 dropped, 2 tokens in the loss");
  EXPECT_EQ(line("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"cd\"}\n"),
            "rows.jsonl: 1 rows read, 0 truncated, 0 dropped, 5 tokens in the loss");
  EXPECT_EQ(line("{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"y\"}\n"),
            "rows.jsonl: 2 rows read, 0 truncated, 0 dropped, 2 labels in the loss: "
            "single_label_classification");
  EXPECT_EQ(line("{\"text\": \"a\", \"label\": 0.5}\n"),
            "rows.jsonl: 1 rows read, 0 truncated, 0 dropped, 1 labels in the loss: regression");
  EXPECT_EQ(line("{\"tokens\": [\"a\", \"b\"], \"tags\": [1, -100]}\n"),
            "rows.jsonl: 1 rows read, 0 truncated, 0 dropped, 1 tags in the loss");
  EXPECT_EQ(line("{\"anchor\": \"a\", \"positive\": \"b\"}\n"),
            "rows.jsonl: 1 rows read, 0 truncated, 0 dropped, 1 pairs in the loss");
}

// TRL keeps rows of which all is masked where it packs.
TEST_F(RowsReportTest, PackedRowsThatTeachNothingAreToldAndAnErrorWhereNoneTeaches) {
  EXPECT_EQ(told_twice(kTwoPrompts, {.packing = true, .max_length = 4}),
            "warning: rows.jsonl: 2 rows read, 2 truncated, 0 dropped, 1 kept without a token in "
            "the loss, 2 tokens in the loss");
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "abcdef"}, {"role": "assistant", "content": "b"}]})"
      "\n";
  const std::string nothing =
      ": none of 1 rows has a token for the loss; raise max_length, or check which tokens the loss "
      "counts";
  const auto error_for = [&](const std::string& text, const RowsOptions& options) {
    EXPECT_TRUE(told(text, options).empty());
    const size_t at = error.find(": none of ");
    return at == std::string::npos ? error : error.substr(0, 15) + error.substr(at);
  };
  EXPECT_EQ(error_for(chat, {.packing = true, .max_length = 5, .assistant_only_loss = true}),
            "text.rows.empty" + nothing);
  EXPECT_EQ(error_for("{\"prompt\": \"abcd\", \"completion\": \"e\"}\n",
                      {.packing = true, .max_length = 4}),
            "text.rows.empty" + nothing);
  // A token that nothing stands before is not predicted.
  EXPECT_EQ(error_for("{\"text\": \"\"}\n", {.task = "lm"}), "text.rows.empty" + nothing);
  EXPECT_EQ(error_for("{\"tokens\": [\"a\"], \"tags\": [-100]}\n", {}),
            "text.rows.empty: none of 1 rows has a tag for the loss; raise max_length, or check "
            "which tokens the loss counts");
}

// What the report says is what the batches hold.
TEST_F(RowsReportTest, CountsAreThoseOfTheBatches) {
  const auto rows = files.rows(kTwoPrompts, tokenizer, {.packing = true, .max_length = 8});
  EXPECT_EQ(counted_labels(files.all(*rows), /*shifted=*/true).item<int64_t>(),
            rows->report().counted);
  const auto apart = files.rows(kTwoPrompts, tokenizer, {.completion_only_loss = false});
  EXPECT_EQ(counted_labels(files.all(*apart), true).item<int64_t>(), apart->report().counted);
}

TEST_F(RowsReportTest, AnOptionSaysWhichTasksItIsOf) {
  EXPECT_EQ(tasks_of_rows_option("mlm_probability"), std::vector<std::string>{"mlm"});
  EXPECT_TRUE(tasks_of_rows_option("batch_size").empty());
}

}  // namespace
}  // namespace levin::text
