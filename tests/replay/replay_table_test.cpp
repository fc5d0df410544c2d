// Every row of the table, eager and replayed from the same seed: the same bits, or it says so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/replay/run.h"

namespace {

using levin::test::difference;
using levin::test::FunctionCase;
using levin::test::has_option;
using levin::test::Outcome;
using levin::test::run;
using levin::test::Settings;
using levin::test::StepCase;
using levin::test::Wanted;

/// What the row asks of its report.
template <class Case>
void expect_wanted(const Case& row, const Outcome& came, const std::string& differs,
                   bool checks_all) {
  const auto& report = came.report;
  SCOPED_TRACE(c10::str(levin::test::to_string(row.category), "; replayed ", report.replayed,
                        ", recorded ", report.recorded, ", eager ", report.eager,
                        report.refusals.empty() ? "" : "; " + report.refusals.front()));
  if (row.wanted == Wanted::kFoundLater && !checks_all && came.error.empty()) {
    EXPECT_TRUE(differs.empty() || !report.refusals.empty()) << "silently: " << differs;
    return;
  }
  EXPECT_EQ(differs, "");
  EXPECT_EQ(levin::test::unwanted(row, report), "");
}

template <class Case>
void expect_as_eager(const Case& row, const Settings& settings, bool checks_all = false) {
  const Outcome eager = run(row, {{"compile", "no"}});
  ASSERT_EQ(eager.error, "");
  ASSERT_FALSE(eager.values.empty());
  const Outcome came = run(row, settings);
  expect_wanted(row, came, difference(eager, came), checks_all);
}

class Steps : public testing::TestWithParam<StepCase> {};
class Functions : public testing::TestWithParam<FunctionCase> {};

TEST_P(Steps, ReplayedEqualEager) { expect_as_eager(GetParam(), {{"compile", "replay"}}); }
TEST_P(Functions, ReplayedEqualEager) { expect_as_eager(GetParam(), {{"compile", "replay"}}); }

TEST_P(Steps, CheckedAtEachReplayEqualEager) {
  if (!has_option("compile_check")) GTEST_SKIP() << "there is no --compile-check";
  expect_as_eager(GetParam(), {{"compile", "replay"}, {"compile_check", "every"}},
                  /*checks_all=*/true);
}
TEST_P(Functions, CheckedAtEachReplayEqualEager) {
  if (!has_option("compile_check")) GTEST_SKIP() << "there is no --compile-check";
  expect_as_eager(GetParam(), {{"compile", "replay"}, {"compile_check", "every"}},
                  /*checks_all=*/true);
}

INSTANTIATE_TEST_SUITE_P(Table, Steps, testing::ValuesIn(levin::test::step_cases()),
                         levin::test::row_name);
INSTANTIATE_TEST_SUITE_P(Table, Functions, testing::ValuesIn(levin::test::function_cases()),
                         levin::test::row_name);

template <class Case>
size_t num_names(const std::vector<Case>& cases) {
  std::set<std::string> names;
  for (const Case& one : cases) names.insert(one.name);
  return names.size();
}

TEST(ReplayTable, IsLong) {
  EXPECT_GE(num_names(levin::test::step_cases()), 150U);
  EXPECT_GE(num_names(levin::test::function_cases()), 60U);
}

}  // namespace
