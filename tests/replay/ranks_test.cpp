// The rows on two ranks, replayed and eager: each rank the same bits.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/replay/run.h"
#include "tests/support/world.h"

namespace {

using levin::test::Category;
using levin::test::Outcome;
using levin::test::run_world;
using levin::test::StepCase;
using levin::test::Wanted;

/// What ranks that record their steps cannot do, and say.
bool is_named(const std::string& error) {
  return error.starts_with("strategy.ddp.unused: ") ||
         error.starts_with("strategy.skipped_batch: ");
}

/// What a rank tells of a row: that a refusal names it, or how it differs from eager or from what is
/// wanted of its report.
struct Told {
  bool is_refused = false;
  std::string differs;
};

/// Whether its report is another than on one rank: gradients lie in memory that ranks share, and of
/// sizes that depend on values each rank's batches, half as many, show few twice.
bool is_told_otherwise(const std::string& row) {
  static const std::set<std::string> rows = {"GradientsHalvedByPointer", "KeepsAGradient",
                                             "KeepsTheGradientBefore",   "TakesNonzero",
                                             "SelectsByAMask",           "IndexesByAMask"};
  return rows.contains(row);
}

template <class Case>
Told told_of(const Case& row) {
  const Outcome eager = levin::test::run(row, {{"compile", "no"}});
  if (!eager.error.empty()) return {false, "eager ended with " + eager.error.substr(0, 200)};
  // Whether a check falls on a step that does something else is a matter of the rank's numbers.
  const bool every = row.wanted == Wanted::kFoundLater;
  const Outcome came =
      levin::test::run(row, {{"compile", "replay"}, {"compile_check", every ? "every" : "auto"}});
  if (is_named(came.error)) return {true, ""};
  std::string differs = levin::test::difference(eager, came);
  if (differs.empty() && !is_told_otherwise(row.name)) {
    differs = levin::test::unwanted(row, came.report);
  }
  return {!came.report.refusals.empty(), differs};
}

template <class Case>
void expect_as_eager(const std::vector<Case>& rows) {
  const auto words = run_world(2, [&](int64_t, const std::filesystem::path&) {
    std::string lines;
    for (const Case& row : rows) {
      const Told told = told_of(row);
      lines += (told.is_refused ? "refused " : "replayed ") + told.differs + "\n";
    }
    return lines;
  });
  std::istringstream first(words[0]), second(words[1]);
  for (const Case& row : rows) {
    bool is_refused = false;
    std::string differs;
    for (std::istringstream* lines : {&first, &second}) {
      std::string line;
      ASSERT_TRUE(std::getline(*lines, line)) << row.name << "; " << words[0] << words[1];
      is_refused = is_refused || line.starts_with("refused ");
      if (differs.empty()) differs = line.substr(line.find(' ') + 1);
    }
    // What the host decides on one rank is wrong on all, and that rank finds it.
    if (row.wanted == Wanted::kFoundLater && is_refused) continue;
    EXPECT_EQ(differs, "") << row.name;
  }
}

class StepsOfRanks : public testing::TestWithParam<Category> {};

TEST_P(StepsOfRanks, ReplayedEqualEager) {
  std::vector<StepCase> rows = levin::test::step_cases();
  std::erase_if(rows,
                [&](const StepCase& row) { return row.category != GetParam() || row.crashes; });
  expect_as_eager(rows);
}

TEST(FunctionsOfRanks, ReplayedEqualEager) { expect_as_eager(levin::test::function_cases()); }

INSTANTIATE_TEST_SUITE_P(Table, StepsOfRanks,
                         testing::Values(Category::kFirstReplay, Category::kKnownToLevin,
                                         Category::kHostStateLater, Category::kHostReads,
                                         Category::kCrashes, Category::kOrdinary),
                         [](const auto& info) {
                           std::string name = levin::test::to_string(info.param);
                           std::erase(name, ' ');
                           return name;
                         });

}  // namespace
