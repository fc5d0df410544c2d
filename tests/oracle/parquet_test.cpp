// Rows of Parquet files that pyarrow has written equal the same rows as JSON lines (parquet.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <thread>

#include "levin/data/sources/sources.h"
#include "tests/oracle/python.h"
#include "tests/support/error_of.h"

namespace parquet_of_python {
namespace {

using levin::test::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct ParquetOfPython : levin::test::PythonTest {
  void SetUp() override {
    PythonTest::SetUp();
    if (IsSkipped()) return;
    std::string output;
    ASSERT_EQ(run("parquet.py", "'" + file("").string() + "'", &output), 0) << output;
    const std::string message = error_of([&] { levin::data::parquet(file("rows.parquet")); });
    if (message.starts_with("data.parquet.library")) GTEST_SKIP() << message;
  }
};

std::string difference(const levin::data::Record& mine, const levin::data::Record& wanted) {
  if (mine.names() != wanted.names()) return "other names";
  for (const std::string& name : wanted.names()) {
    if (mine.kind(name) != wanted.kind(name)) return name + " has another kind";
    const auto own = nlohmann::json::parse(mine.json(name));
    const auto other = nlohmann::json::parse(wanted.json(name));
    if (own != other) return name + ": " + own.dump() + ", wanted " + other.dump();
  }
  return "";
}

TEST_F(ParquetOfPython, HasTheRowsOfJsonLinesInAnyOrder) {
  const auto mine = levin::data::open_records(file("rows.parquet"));
  const auto wanted = levin::data::json_lines(file("rows.jsonl"));
  ASSERT_EQ(mine->size(), 100);
  EXPECT_TRUE(mine->has_kinds());
  for (int64_t i = 0; i < 200; ++i) {
    const int64_t index = i * 37 % 100;
    EXPECT_EQ(difference(mine->read(index), wanted->read(index)), "") << index;
  }
  EXPECT_EQ(mine->read(6).where(), file("rows.parquet").string() + ", row 7");
  EXPECT_THAT(error_of([&] { mine->read(100); }), StartsWith("data.records.index: "));
}

TEST_F(ParquetOfPython, ThreadsReadTheSameRows) {
  const auto mine = levin::data::parquet(file("rows.parquet"));
  std::vector<std::string> first(100), second(100);
  const auto read = [&](std::vector<std::string>& texts, int64_t step) {
    for (int64_t i = 0; i < 100; ++i) {
      const int64_t index = i * step % 100;
      texts[static_cast<size_t>(index)] = mine->read(index).text("text");
    }
  };
  {
    const std::jthread one([&] { read(first, 37); });
    read(second, 63);
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[41], "row 41 ä");
}

TEST_F(ParquetOfPython, FilesThatCannotBeReadAreErrors) {
  EXPECT_THAT(error_of([&] { levin::data::parquet(file("bytes.parquet")); }),
              HasSubstr("column 'image' has the type binary"));
  for (const char* name : {"cut.parquet", "foreign.parquet"}) {
    EXPECT_THAT(error_of([&] { levin::data::parquet(file(name)); }),
                StartsWith("data.parquet: " + file(name).string()));
  }
  EXPECT_THAT(error_of([&] { levin::data::parquet(file("none.parquet")); }),
              StartsWith("files.read: "));
}

}  // namespace
}  // namespace parquet_of_python
