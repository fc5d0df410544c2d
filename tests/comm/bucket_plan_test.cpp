// Buckets of gradients: where each ends, and how its members lie.
#include "levin/comm/collectives/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace bucket_plan_test {
namespace {

using levin::comm::BucketPlan;
using levin::comm::BucketSizes;
using levin::comm::plan_buckets;
using levin::comm::PlannedGradient;
using ::testing::ElementsAre;
using Members = std::vector<std::vector<size_t>>;

Members members_of(const std::vector<PlannedGradient>& gradients, const BucketSizes& sizes) {
  std::vector<size_t> order;
  for (size_t i = gradients.size(); i > 0; --i) order.push_back(i - 1);
  Members members;
  for (const BucketPlan& bucket : plan_buckets(gradients, order, sizes)) {
    members.push_back(bucket.members);
  }
  return members;
}

TEST(BucketPlan, ABucketIsClosedOnceItHoldsItsBytes) {
  const std::vector<PlannedGradient> lines(6, {.numel = 16});  // 64 bytes each
  EXPECT_EQ(members_of(lines, {.first_bytes = 64, .bytes = 100}),
            (Members{{5}, {4, 3}, {2, 1}, {0}}));
  // A gradient of 4 bytes takes a cache line.
  const std::vector<PlannedGradient> small(3, {.numel = 1});
  EXPECT_EQ(members_of(small, {.first_bytes = 128, .bytes = 128}), (Members{{2, 1}, {0}}));
}

TEST(BucketPlan, ALimitIsExceededByAGradientAlone) {
  const std::vector<PlannedGradient> gradients = {
      {.numel = 25}, {.numel = 50}, {.numel = 10}, {.numel = 15}};
  EXPECT_EQ(members_of(gradients, {.first_bytes = 100, .bytes = 100, .is_limit = true}),
            (Members{{3, 2}, {1}, {0}}));
}

TEST(BucketPlan, TypesAreApart) {
  const std::vector<PlannedGradient> gradients = {
      {.numel = 16}, {.numel = 16, .type = at::kDouble}, {.numel = 16}};
  const auto plan = plan_buckets(gradients, std::array<size_t, 3>{0, 1, 2}, {});
  ASSERT_EQ(plan.size(), 2);
  for (const BucketPlan& bucket : plan) {
    EXPECT_EQ(bucket.members.size(), bucket.type == at::kFloat ? 2 : 1);
  }
}

TEST(BucketPlan, GradientsThatEndOnACacheLineComeFirstAndEachStartsOnOne) {
  const std::vector<PlannedGradient> gradients = {
      {.numel = 3}, {.numel = 32}, {.numel = 17}, {.numel = 16}};
  const auto plan = plan_buckets(gradients, std::array<size_t, 4>{0, 1, 2, 3}, {});
  ASSERT_EQ(plan.size(), 1);
  EXPECT_THAT(plan[0].members, ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(plan[0].offsets, ElementsAre(0, 32, 48, 64));
  EXPECT_EQ(plan[0].count, 96);
}

}  // namespace
}  // namespace bucket_plan_test
