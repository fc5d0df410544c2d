#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"

// A build without Apache Arrow has this function; this build has it beside its own.
namespace levin::data {
RecordsPtr parquet_without_arrow(const std::filesystem::path& path);
}
#define parquet parquet_without_arrow
#include "levin/data/sources/no_parquet.cpp"  // NOLINT(bugprone-suspicious-include)
#undef parquet
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::data {
namespace {

using test::error_of;
using test::told_by;

using Table = std::vector<std::vector<std::string>>;

Table read_all(const RecordsPtr& records) {
  Table table;
  for (int64_t i = 0; i < records->size(); ++i) {
    const Record record = records->read(i);
    auto& row = table.emplace_back();
    for (const std::string& name : record.names()) row.push_back(name + "=" + record.text(name));
  }
  return table;
}

struct RecordsTest : ::testing::Test {
  RecordsPtr lines(std::string_view text) {
    return json_lines(test::put(scratch / "rows.jsonl", text));
  }
  RecordsPtr table(std::string_view text, CsvOptions options = {}) {
    return csv(test::put(scratch / "rows.csv", text), options);
  }
  std::string in_file(const std::string& name, const std::string& text) {
    return (scratch / name).string() + text;
  }
  test::Scratch scratch;
};

TEST_F(RecordsTest, JsonLinesHaveValuesOfEveryKind) {
  const auto records = lines(
      "\xef\xbb\xbf{\"text\": \"a\\nb \\u00e9\", \"n\": -3, \"x\": 0.5, \"yes\": true, \"no\": "
      "null,"
      " \"list\": [1, 2.5], \"words\": [\"a\", \"\"], \"o\": {\"z\": 1, \"a\": [2]}}\r\n"
      "\n   \n{\"text\": \"last\"}");
  ASSERT_EQ(records->size(), 2);
  const Record record = records->read(0);
  using Kind = Record::Kind;
  EXPECT_EQ(record.text("text"), "a\nb \xc3\xa9");
  EXPECT_EQ(record.integer("n"), -3);
  EXPECT_EQ(record.number("n"), -3.0);
  EXPECT_EQ(record.number("x"), 0.5);
  EXPECT_EQ(record.numbers("list"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(record.texts("words"), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(record.json("o"), R"({"z":1,"a":[2]})");
  EXPECT_FALSE(record.has("no"));
  const std::vector<Kind> kinds = {record.kind("text"), record.kind("n"),     record.kind("x"),
                                   record.kind("yes"),  record.kind("no"),    record.kind("list"),
                                   record.kind("o"),    record.kind("absent")};
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kText, Kind::kInteger, Kind::kNumber, Kind::kFlag,
                                      Kind::kMissing, Kind::kList, Kind::kObject, Kind::kMissing}));
  EXPECT_EQ(records->read(1).where(), in_file("rows.jsonl", ", line 4"));
  EXPECT_TRUE(records->has_kinds());
}

TEST_F(RecordsTest, ADamagedLineIsAnErrorWithFileAndLine) {
  const auto records = lines("{\"a\": 1}\n{\"a\": 1\n[1]\n{\"a\": \"\xff\"}\n" +
                             std::string(501, '[') + "\n{} {}\n");
  const std::string file = (scratch / "rows.jsonl").string();
  EXPECT_EQ(records->read(0).integer("a"), 1);
  const auto told = [&](int64_t row) { return told_by([&] { records->read(row); }); };
  EXPECT_EQ(told(1), "data.json_lines: " + file +
                         ", line 2: invalid JSON at byte 7 of 7, wanted one object per line");
  EXPECT_EQ(told(2),
            "data.json_lines: " + file +
                ", line 3: got a JSON array, wanted one object per line, as {\"text\": \"...\"}");
  EXPECT_EQ(told(3), "data.utf8: " + file +
                         ", line 4: byte 0xff at position 7 is not UTF-8; convert the file, for "
                         "example with iconv");
  EXPECT_EQ(told(4),
            "data.json_lines: " + file + ", line 5: the JSON is nested deeper than 500 levels");
  EXPECT_EQ(told(5), "data.json_lines: " + file +
                         ", line 6: invalid JSON at byte 4 of 5, wanted one object per line");
  EXPECT_EQ(told(6), "data.records.index: got row index 6 of " + file + ", which has 6 rows");
}

TEST_F(RecordsTest, AValueThatIsMissingOrOfAnotherKindIsAnErrorWithFileAndLine) {
  const auto records = lines("\n{\"text\": 5, \"n\": \"x\", \"big\": 18446744073709551615}\n");
  const Record record = records->read(0);
  const std::string at = "data.records.field: " + (scratch / "rows.jsonl").string() + ", line 2: ";
  EXPECT_EQ(told_by([&] { record.text("label"); }),
            at + "the field 'label' is missing; the row has text, n, big");
  EXPECT_EQ(told_by([&] { record.text("text"); }), at + "'text' is 5, wanted a string");
  EXPECT_EQ(told_by([&] { record.integer("n"); }), at + "'n' is \"x\", wanted an integer");
  EXPECT_EQ(told_by([&] { record.integer("big"); }),
            at + "'big' is 18446744073709551615, wanted an integer");
  EXPECT_EQ(told_by([&] { record.number("n"); }), at + "'n' is \"x\", wanted a number");
  EXPECT_EQ(told_by([&] { record.texts("n"); }), at + "'n' is \"x\", wanted a list of strings");
  EXPECT_EQ(told_by([&] { record.numbers("n"); }), at + "'n' is \"x\", wanted a list of numbers");
}

TEST_F(RecordsTest, CsvHasQuotesDelimitersAndEndsOfLinesInFields) {
  EXPECT_EQ(read_all(table("a,b\n1,\"x, y\"\n\"say \"\"hi\"\"\",\"two\r\nlines\"\n\n,last")),
            (Table{{"a=1", "b=x, y"}, {"a=say \"hi\"", "b=two\r\nlines"}, {"a=", "b=last"}}));
  EXPECT_EQ(read_all(table("\xef\xbb\xbf"
                           "a,b\r\n1,2\r\n\"3\",\"4\"\r\n")),
            (Table{{"a=1", "b=2"}, {"a=3", "b=4"}}));
  EXPECT_EQ(read_all(table("a;b\n1,5;\n", {.delimiter = ';'})), (Table{{"a=1,5", "b="}}));
  EXPECT_EQ(read_all(table("a\n\"kept\r\"\nx\"y\n")), (Table{{"a=kept\r"}, {"a=x\"y"}}));
  EXPECT_EQ(table("a,b")->size(), 0);
}

TEST_F(RecordsTest, CsvCountsLinesAndReadsNumbersThatAreAskedFor) {
  const auto records = table("a,b\n\"x\ny\",1\n\n2.5,-7\n");
  EXPECT_EQ(records->read(0).where(), in_file("rows.csv", ", line 2"));
  const Record record = records->read(1);
  EXPECT_EQ(record.where(), in_file("rows.csv", ", line 5"));
  EXPECT_EQ(record.number("a"), 2.5);
  EXPECT_EQ(record.integer("b"), -7);
  EXPECT_EQ(record.kind("b"), Record::Kind::kText);
  EXPECT_FALSE(records->has_kinds());
}

TEST_F(RecordsTest, ADamagedCsvIsAnErrorWithFileAndLine) {
  const std::string file = (scratch / "rows.csv").string();
  const auto told = [&](std::string_view text) { return told_by([&] { read_all(table(text)); }); };
  EXPECT_EQ(told("\n\n"), "data.csv: " + file + " is empty, wanted a header line");
  EXPECT_EQ(told("a,a\n"), "data.csv: " + file + ", line 1: two columns are named 'a'; rename one");
  EXPECT_EQ(told("a,b\n1,2\n1\n"), "data.csv: " + file + ", line 3: got 1 fields, wanted 2: a,b");
  EXPECT_EQ(told("a,b\n1,2,3\n"), "data.csv: " + file + ", line 2: got 3 fields, wanted 2: a,b");
  EXPECT_EQ(told("a,b\n1,\"2\n\n"),
            "data.csv: " + file + ", line 2: a quote opens a field but no quote closes it");
  EXPECT_EQ(
      told("a,b\n\"1\"2,3\n"),
      "data.csv: " + file +
          ", line 2: text follows the closing quote of a field; double the quotes within a field");
  EXPECT_EQ(told("a,b\n1,\xc3(\n"), "data.utf8: " + file +
                                        ", line 2: byte 0xc3 at position 2 is not UTF-8; convert "
                                        "the file, for example with iconv");
  EXPECT_EQ(told_by([&] { table("a\n", {.delimiter = '"'}); }),
            "data.csv: got a quote or a line end as delimiter, wanted another character");
}

TEST_F(RecordsTest, AFileIsOpenedByItsName) {
  test::put(scratch / "a.tsv", "x\ty\n1\t2,3\n");
  test::put(scratch / "a.ndjson", "{}\n");
  EXPECT_EQ(read_all(open_records(scratch / "a.tsv")), (Table{{"x=1", "y=2,3"}}));
  EXPECT_EQ(open_records(scratch / "a.ndjson")->size(), 1);
  EXPECT_EQ(test::error_id([&] { open_records(scratch / "a.xlsx"); }), "data.records.format");
  EXPECT_EQ(test::error_id([&] { open_records(scratch / "none.csv"); }), "files.read");
}

TEST_F(RecordsTest, SaysHowToReadParquetWhereArrowIsAbsent) {
  EXPECT_THAT(
      error_of([] { parquet_without_arrow("a.parquet"); }),
      testing::StartsWith("data.parquet.library: a.parquet is a Parquet file, but levin was "
                          "built without Apache Arrow; install "));
}

TEST_F(RecordsTest, ADataSetOfOnesOwnReadsThemInSeveralThreads) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "{\"x\": [" + std::to_string(i) + ", 1]}\n";
  const auto records = lines(text);
  DataLoader loader(samples(records->size(),
                            [records](int64_t i) {
                              return Sample{{"x", at::tensor(records->read(i).numbers("x"))}};
                            }),
                    {.batch_size = 50, .num_workers = 3});
  double sum = 0;
  for (const Batch& batch : loader) sum += batch["x"].sum().item<double>();
  EXPECT_EQ(sum, 500 * 499 / 2.0 + 500);
}

TEST_F(RecordsTest, ARecordOutlivesItsFile) {
  Record record = lines("{\"a\": 1}")->read(0);
  EXPECT_EQ(record.where(), in_file("rows.jsonl", ", line 1"));
}

}  // namespace
}  // namespace levin::data
