// Where units are cut over ranks.
#include "levin/strategy/fsdp/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace {

using levin::fsdp::cut_unit;
using levin::fsdp::CutAt;
using levin::fsdp::Extent;
using levin::fsdp::extents_of;
using levin::fsdp::rows_in_runs;
using ::testing::ElementsAre;

using Sizes = std::vector<std::vector<int64_t>>;

TEST(CutUnit, LaysParametersOneBehindTheOtherAtMultiplesOfTheAlignment) {
  const auto extents = extents_of(Sizes{{3, 5}, {7}, {2, 2, 2}}, 16);
  ASSERT_EQ(extents.size(), 3U);
  EXPECT_EQ(extents[0].begin, 0);
  EXPECT_EQ(extents[0].row_numel, 5);
  EXPECT_EQ(extents[1].begin, 16);
  EXPECT_EQ(extents[1].row_numel, 1);
  EXPECT_EQ(extents[2].begin, 32);
  EXPECT_EQ(extents[2].end(), 40);
}

TEST(CutUnit, EndsRunsAtTheNearestRow) {
  const auto extents =
      extents_of(Sizes{{5, 4}}, 1);  // 20 elements, 10 are half: between rows 2 and 3
  EXPECT_THAT(cut_unit(extents, 2, CutAt::kRows), ElementsAre(12, 8));
  EXPECT_THAT(cut_unit(extents, 3, CutAt::kRows), ElementsAre(8, 4, 8));
}

TEST(CutUnit, GivesWholeParametersWhereTheyAreOwned) {
  const auto extents = extents_of(Sizes{{4, 4}, {4}, {4, 4}, {4}}, 1);
  EXPECT_THAT(cut_unit(extents, 2, CutAt::kParameters), ElementsAre(20, 20));
  EXPECT_THAT(cut_unit(extents, 3, CutAt::kParameters), ElementsAre(16, 4, 20));
}

TEST(CutUnit, LeavesRanksWithoutRowsWhereThereAreTooFew) {
  const auto extents = extents_of(Sizes{{1, 8}}, 1);
  const auto runs = cut_unit(extents, 4, CutAt::kRows);
  EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), int64_t{0}), 8);
  EXPECT_EQ(std::ranges::count(runs, 8), 1);
}

// Runs together are the unit; a border is never within a row; no run is a row or more away from
// what an even division would give.
TEST(CutUnit, IsAsEvenAsRowsAllowForAnyUnit) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    Sizes sizes;
    for (int64_t i = draw(6); i > 0; --i) {
      sizes.push_back({draw(40)});
      if (draw(2) == 1) sizes.back().push_back(draw(30));
    }
    const int64_t alignment = draw(2) == 1 ? 1 : 16, ranks = draw(8);
    const auto at = draw(4) == 1 ? CutAt::kParameters : CutAt::kRows;
    const auto extents = extents_of(sizes, alignment);
    const auto runs = cut_unit(extents, ranks, at);
    ASSERT_EQ(std::ssize(runs), ranks);
    ASSERT_GE(std::ranges::min(runs), 0);
    const int64_t total = extents.back().end();
    ASSERT_EQ(std::accumulate(runs.begin(), runs.end(), int64_t{0}), total);
    std::vector<std::vector<int64_t>> rows;
    int64_t longest = alignment;
    for (const Extent& extent : extents) {
      rows.push_back(rows_in_runs(extent, runs));
      ASSERT_EQ(std::accumulate(rows.back().begin(), rows.back().end(), int64_t{0}),
                extent.num_rows);
      const int64_t unit = at == CutAt::kRows ? extent.row_numel : extent.end() - extent.begin;
      longest = std::max(longest, unit + alignment);
      if (at == CutAt::kParameters) ASSERT_EQ(std::ranges::count(rows.back(), extent.num_rows), 1);
    }
    int64_t end = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t elements = 0;
      for (size_t i = 0; i < extents.size(); ++i) {
        elements += rows[i][static_cast<size_t>(rank)] * extents[i].row_numel;
      }
      ASSERT_LE(elements, runs[static_cast<size_t>(rank)]) << "rows lie within the run";
      end += runs[static_cast<size_t>(rank)];
      ASSERT_LE(std::abs(end - total * (rank + 1) / ranks), longest) << "an even division";
    }
  }
}

}  // namespace
