// The rows of training steps on two ranks, replayed and eager: each rank the same bits.
#include <gtest/gtest.h>

#include "tests/replay/run.h"
#include "tests/support/world.h"

namespace {

using levin::test::Category;
using levin::test::Outcome;
using levin::test::run_world;
using levin::test::StepCase;
using levin::test::Wanted;

/// "" where the row does what it is to do.
std::string fault_of(const StepCase& row) {
  const Outcome eager = levin::test::run(row, {{"compile", "no"}});
  if (!eager.error.empty()) return "eager ended with " + eager.error.substr(0, 200);
  const Outcome came = levin::test::run(row, {{"compile", "replay"}});
  const std::string differs = levin::test::difference(eager, came);
  if (differs.empty()) return "";
  return row.wanted == Wanted::kFoundLater && !came.report.refusals.empty() ? "" : differs;
}

class StepsOfRanks : public testing::TestWithParam<Category> {};

TEST_P(StepsOfRanks, ReplayedEqualEager) {
  const auto words = run_world(2, [](int64_t, const std::filesystem::path&) {
    std::string faults;
    for (const StepCase& row : levin::test::step_cases()) {
      if (row.category != GetParam() || row.crashes) continue;
      const std::string fault = fault_of(row);
      if (!fault.empty()) faults += row.name + ": " + fault + "\n";
    }
    return faults;
  });
  for (const std::string& word : words) EXPECT_EQ(word, "");
}

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
