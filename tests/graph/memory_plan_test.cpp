#include "levin/graph/replay/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace {

using levin::graph::MemoryNeed;
using levin::graph::MemoryPlan;
using levin::graph::plan_memory;

TEST(MemoryPlan, GivesAPlaceOnceMoreWhenItIsFreeAgain) {
  const MemoryPlan plan = plan_memory({{128, 0, 1}, {64, 1, 2}, {128, 2, 3}});
  EXPECT_EQ(plan.bytes, 192);
  EXPECT_EQ(plan.needed, 192);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
}

TEST(MemoryPlan, OfNothingIsEmpty) {
  EXPECT_EQ(plan_memory({}).bytes, 0);
  EXPECT_EQ(plan_memory({{0, 0, 5}}).bytes, 0);
}

TEST(MemoryPlan, LaysEachAtTheAlignmentThatIsAskedFor) {
  const MemoryPlan plan = plan_memory({{100, 0, 2}, {600, 0, 2}, {100, 1, 2}}, 512);
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{1024, 0, 1536}));
  EXPECT_EQ(plan.bytes, 2048);
  EXPECT_EQ(plan.needed, 2048);
}

// Values of random sizes and lives: no two at the same place at the same time, and little lost.
TEST(MemoryPlan, NeverLaysTwoOverEachOther) {
  // NOLINTNEXTLINE(bugprone-random-generator-seed): the same each time
  std::mt19937 random(3);
  double lost = 0.0;
  for (int round = 0; round < 50; ++round) {
    std::vector<MemoryNeed> needs;
    for (size_t i = 0; i < 200; ++i) {
      const size_t first = i, last = i + random() % (random() % 10 == 0 ? 200 : 8);
      needs.push_back({static_cast<int64_t>(random() % 4000), first, last});
    }
    const MemoryPlan plan = plan_memory(needs);
    EXPECT_GE(plan.bytes, plan.needed);
    lost += static_cast<double>(plan.bytes) / static_cast<double>(plan.needed);
    for (size_t i = 0; i < needs.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0);
      EXPECT_LE(plan.offsets[i] + needs[i].bytes, plan.bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool at_one_time = needs[i].first <= needs[j].last && needs[j].first <= needs[i].last;
        const bool at_one_place = plan.offsets[i] < plan.offsets[j] + needs[j].bytes &&
                                  plan.offsets[j] < plan.offsets[i] + needs[i].bytes;
        EXPECT_FALSE(at_one_time && at_one_place && needs[i].bytes > 0 && needs[j].bytes > 0);
      }
    }
  }
  EXPECT_LT(lost / 50, 1.1);
}

}  // namespace
