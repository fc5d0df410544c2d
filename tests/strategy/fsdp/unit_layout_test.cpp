// Where units are cut over ranks.
#include "levin/strategy/fsdp/unit_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace {

using levin::fsdp::CutAt;
using levin::fsdp::UnitLayout;
using ::testing::ElementsAre;

using Sizes = std::vector<std::vector<int64_t>>;

TEST(UnitLayout, LaysParametersOneBehindTheOtherAtMultiplesOfTheAlignment) {
  const UnitLayout layout(Sizes{{3, 5}, {7}, {2, 2, 2}}, 16, 1, CutAt::kRows);
  ASSERT_EQ(layout.num_parameters(), 3U);
  EXPECT_EQ(layout.offset(0), 0);
  EXPECT_EQ(layout.numel(0), 15);
  EXPECT_EQ(layout.offset(1), 16);
  EXPECT_EQ(layout.numel(1), 7);
  EXPECT_EQ(layout.offset(2), 32);
  EXPECT_EQ(layout.numel(), 40);
}

TEST(UnitLayout, EndsRunsAtTheNearestRow) {
  // 20 elements, 10 are half: between rows 2 and 3.
  const Sizes sizes = {{5, 4}};
  EXPECT_THAT(UnitLayout(sizes, 1, 2, CutAt::kRows).runs(), ElementsAre(12, 8));
  const UnitLayout thirds(sizes, 1, 3, CutAt::kRows);
  EXPECT_THAT(thirds.runs(), ElementsAre(8, 4, 8));
  EXPECT_THAT(thirds.rows(0), ElementsAre(2, 1, 2));
  EXPECT_EQ(thirds.first_row(0, 2), 3);
  EXPECT_EQ(thirds.offset(0, 2), 12);
  EXPECT_EQ(thirds.run_begin(2), 12);
}

TEST(UnitLayout, GivesWholeParametersWhereTheyAreOwned) {
  const Sizes sizes = {{4, 4}, {4}, {4, 4}, {4}};
  EXPECT_THAT(UnitLayout(sizes, 1, 2, CutAt::kParameters).runs(), ElementsAre(20, 20));
  EXPECT_THAT(UnitLayout(sizes, 1, 3, CutAt::kParameters).runs(), ElementsAre(16, 4, 20));
}

TEST(UnitLayout, LeavesRanksWithoutRowsWhereThereAreTooFew) {
  const UnitLayout layout(Sizes{{1, 8}}, 1, 4, CutAt::kRows);
  EXPECT_EQ(std::accumulate(layout.runs().begin(), layout.runs().end(), int64_t{0}), 8);
  EXPECT_EQ(std::ranges::count(layout.runs(), 8), 1);
}

TEST(UnitLayout, OfNoParametersHasEmptyRuns) {
  const UnitLayout layout(Sizes{{4, 4}}, 16, 3, CutAt::kRows);
  const UnitLayout none = layout.only({}, 1);
  EXPECT_EQ(none.numel(), 0);
  EXPECT_THAT(none.runs(), ElementsAre(0, 0, 0));
}

/// Sizes and where to cut them, drawn.
struct Drawn {
  explicit Drawn(std::mt19937& random) {
    const auto draw = [&](int64_t most) {
      return std::uniform_int_distribution<int64_t>(1, most)(random);
    };
    for (int64_t i = draw(6); i > 0; --i) {
      sizes.push_back({draw(40)});
      if (draw(2) == 1) sizes.back().push_back(draw(30));
    }
    alignment = draw(2) == 1 ? 1 : 16;
    ranks = draw(8);
    at = draw(4) == 1 ? CutAt::kParameters : CutAt::kRows;
  }
  UnitLayout layout() const { return {sizes, alignment, ranks, at}; }
  int64_t row_numel(size_t i) const { return sizes[i].size() == 1 ? 1 : sizes[i][1]; }

  Sizes sizes;
  int64_t alignment = 1, ranks = 1;
  CutAt at = CutAt::kRows;
};

// Runs together are the unit; a border is never within a row; no run is a row or more away from
// what an even division would give.
TEST(UnitLayout, IsAsEvenAsRowsAllowForAnyUnit) {
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed)
  for (int round = 0; round < 3000; ++round) {
    const Drawn drawn(random);
    const UnitLayout layout = drawn.layout();
    ASSERT_EQ(std::ssize(layout.runs()), drawn.ranks);
    ASSERT_GE(std::ranges::min(layout.runs()), 0);
    const int64_t total = layout.numel();
    ASSERT_EQ(layout.run_begin(drawn.ranks), total);
    int64_t longest = drawn.alignment;
    for (size_t i = 0; i < drawn.sizes.size(); ++i) {
      const int64_t num_rows = drawn.sizes[i].front();
      ASSERT_EQ(layout.first_row(i, drawn.ranks), num_rows);
      const int64_t piece = drawn.at == CutAt::kRows ? drawn.row_numel(i) : layout.numel(i);
      longest = std::max(longest, piece + drawn.alignment);
      if (drawn.at == CutAt::kParameters) {
        ASSERT_EQ(std::ranges::count(layout.rows(i), num_rows), 1);
      }
    }
    int64_t end = 0;
    for (int64_t rank = 0; rank < drawn.ranks; ++rank) {
      int64_t elements = 0;
      for (size_t i = 0; i < drawn.sizes.size(); ++i) {
        elements += layout.rows(i)[static_cast<size_t>(rank)] * drawn.row_numel(i);
      }
      ASSERT_LE(elements, layout.run(rank)) << "rows lie within the run";
      end += layout.run(rank);
      ASSERT_LE(std::abs(end - total * (rank + 1) / drawn.ranks), longest) << "an even division";
    }
  }
}

// Without gaps the runs of some parameters are their rows, one behind the other; a rank's rows of a
// parameter are within its run.
TEST(UnitLayout, OfSomeParametersGivesEachRankTheSameRows) {
  std::mt19937 random(9);  // NOLINT(bugprone-random-generator-seed)
  for (int round = 0; round < 1000; ++round) {
    const Drawn drawn(random);
    const UnitLayout layout = drawn.layout();
    std::vector<size_t> some;
    for (size_t i = 0; i < drawn.sizes.size(); ++i) {
      if (random() % 2 == 0) some.push_back(i);
    }
    const UnitLayout part = layout.only(some, 1);
    for (int64_t rank = 0; rank < drawn.ranks; ++rank) {
      int64_t elements = 0;
      for (size_t i = 0; i < some.size(); ++i) {
        ASSERT_EQ(part.rows(i), layout.rows(some[i]));
        const int64_t own = part.rows(i)[static_cast<size_t>(rank)] * drawn.row_numel(some[i]);
        elements += own;
        if (own == 0) continue;
        ASSERT_GE(part.offset(i, rank), part.run_begin(rank));
        ASSERT_LE(part.offset(i, rank) + own, part.run_begin(rank) + part.run(rank));
      }
      ASSERT_EQ(part.run(rank), elements);
    }
  }
}

}  // namespace
