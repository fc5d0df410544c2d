#include "levin/shard/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/shard/exchange.h"
#include "tests/shard/layouts.h"
#include "tests/support/error_of.h"

namespace {

using levin::ReduceOp;
using levin::comm::MeshShape;
using levin::shard::bytes_sent;
using levin::shard::halfway;
using levin::shard::Layout;
using levin::shard::Move;
using levin::shard::Partial;
using levin::shard::Plan;
using levin::shard::plan_from_first;
using levin::shard::plan_redistribute;
using levin::shard::plan_slices;
using levin::shard::Reduction;
using levin::shard::Replicate;
using levin::shard::Shard;
using levin::shard::Slice;
using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MeshShape four() { return {{"dp", 4}}; }
MeshShape replicas() { return {{"replicate", 2}, {"shard", 2}}; }

int64_t all_bytes(const Plan& plan) {
  int64_t bytes = 0;
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) bytes += bytes_sent(plan, rank, 4);
  return bytes;
}

TEST(Plan, RowsToColumnsIsOneBoxForEachPair) {
  const Plan plan =
      plan_redistribute(Layout({8, 8}, four(), {Shard{0}}), Layout({8, 8}, four(), {Shard{1}}));
  EXPECT_THAT(plan.moves_to(1),
              ElementsAre(Move{0, 1, {{0, 2}, {2, 2}}}, Move{1, 1, {{2, 2}, {2, 2}}},
                          Move{2, 1, {{4, 2}, {2, 2}}}, Move{3, 1, {{6, 2}, {2, 2}}}));
  EXPECT_THAT(plan.moves_from(3),
              ElementsAre(Move{3, 0, {{6, 0}, {2, 2}}}, Move{3, 1, {{6, 2}, {2, 2}}},
                          Move{3, 2, {{6, 4}, {2, 2}}}, Move{3, 3, {{6, 6}, {2, 2}}}));
  for (int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(bytes_sent(plan, rank, 4), 3 * 4 * 4);
  EXPECT_FALSE(plan.is_local());
}

TEST(Plan, WhatIsThereAlreadyIsNotSent) {
  const Layout whole({9}, four(), {Replicate{}}), parts({9}, four(), {Shard{0}}),
      partial({9}, four(), {Partial{}});
  for (const auto& [from, to] :
       {std::pair(whole, parts), {whole, partial}, {parts, parts}, {partial, partial}}) {
    const Plan plan = plan_redistribute(from, to);
    EXPECT_TRUE(plan.is_local()) << from << " to " << to;
    EXPECT_EQ(all_bytes(plan), 0);
  }
  // Parts that moved by one: that one.
  const Plan plan = plan_redistribute(Layout({8}, four(), {Shard{0, {2, 2, 2, 2}}}),
                                      Layout({8}, four(), {Shard{0, {3, 1, 2, 2}}}));
  EXPECT_FALSE(plan.is_local());
  EXPECT_EQ(bytes_sent(plan, 1, 4), 4);
  EXPECT_EQ(all_bytes(plan), 4);
}

TEST(Plan, ReplicasShareTheWork) {
  const Plan plan = plan_redistribute(Layout({8}, replicas(), {Replicate{}, Shard{0}}),
                                      Layout({8}, replicas(), {Replicate{}, Replicate{}}));
  EXPECT_THAT(plan.moves_from(0), ElementsAre(Move{0, 0, {{0}, {4}}}, Move{0, 1, {{0}, {4}}}));
  EXPECT_THAT(plan.moves_from(2), ElementsAre(Move{2, 2, {{0}, {4}}}, Move{2, 3, {{0}, {4}}}));
  for (int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(bytes_sent(plan, rank, 4), 16);
}

TEST(Plan, SummandsComeFromEachRankInTheirOrder) {
  const Plan plan =
      plan_redistribute(Layout({8}, four(), {Partial{}}), Layout({8}, four(), {Shard{0}}));
  EXPECT_EQ(plan.num_parts(), 4);
  EXPECT_THAT(plan.reductions(), ElementsAre(Reduction{ReduceOp::kSum, 4}));
  EXPECT_THAT(plan.moves_to(2), ElementsAre(Move{0, 2, {{4}, {2}}, 0}, Move{1, 2, {{4}, {2}}, 1},
                                            Move{2, 2, {{4}, {2}}, 2}, Move{3, 2, {{4}, {2}}, 3}));
}

TEST(Plan, NeighboursOfOneOperationAreOneReductionAndOthersComeRightFirst) {
  const MeshShape mesh{{"a", 2}, {"b", 3}, {"c", 2}};
  const auto reductions = [&](const Partial& a, const Partial& b, const Partial& c) {
    const Layout from({4}, mesh, {a, b, c});
    return plan_redistribute(from, Layout({4}, mesh, {Replicate{}, Replicate{}, Replicate{}}))
        .reductions();
  };
  const Partial sum{ReduceOp::kSum}, max{ReduceOp::kMax};
  EXPECT_THAT(reductions(sum, sum, sum), ElementsAre(Reduction{ReduceOp::kSum, 12}));
  EXPECT_THAT(reductions(sum, sum, max),
              ElementsAre(Reduction{ReduceOp::kMax, 2}, Reduction{ReduceOp::kSum, 6}));
  EXPECT_THAT(reductions(sum, max, sum),
              ElementsAre(Reduction{ReduceOp::kSum, 2}, Reduction{ReduceOp::kMax, 3},
                          Reduction{ReduceOp::kSum, 2}));
}

TEST(Plan, AnAxisThatStaysPartialIsNotReduced) {
  const Layout from({8}, replicas(), {Partial{}, Shard{0}}),
      to({8}, replicas(), {Partial{}, Replicate{}});
  const Plan plan = plan_redistribute(from, to);
  EXPECT_EQ(plan.num_parts(), 1);
  EXPECT_THAT(plan.moves_to(3), ElementsAre(Move{2, 3, {{0}, {4}}}, Move{3, 3, {{4}, {4}}}));
  // But the maximum of sums is not the sum of maxima.
  const Layout sums_of_maxima({8}, replicas(), {Partial{}, Partial{ReduceOp::kMax}});
  const Layout maxima({8}, replicas(), {Replicate{}, Partial{ReduceOp::kMax}});
  EXPECT_EQ(plan_redistribute(sums_of_maxima, maxima).num_parts(), 4);
}

TEST(Plan, WhatBecomesPartialStandsOnTheFirstRankOrOnAll) {
  const Layout whole({8}, four(), {Replicate{}});
  const auto fill_of = [&](ReduceOp op, int64_t rank) {
    return plan_redistribute(whole, Layout({8}, four(), {Partial{op}})).fill(rank);
  };
  for (const auto op :
       {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    EXPECT_EQ(fill_of(op, 0), std::nullopt);
  }
  EXPECT_EQ(fill_of(ReduceOp::kSum, 3), 0);
  EXPECT_EQ(fill_of(ReduceOp::kProduct, 3), 1);
  EXPECT_EQ(fill_of(ReduceOp::kMean, 3), std::nullopt);
  EXPECT_EQ(fill_of(ReduceOp::kMax, 3), std::nullopt);
}

TEST(Plan, EachRankGetsTheBoxThatItWants) {
  const std::vector<Slice> slices = {{{1}, {4}}, {{0}, {0}}, {{7}, {1}}, {{4}, {2}}};
  const Plan plan = plan_slices(Layout({8}, four(), {Shard{0}}), slices);
  EXPECT_THAT(plan.moves_to(0),
              ElementsAre(Move{0, 0, {{1}, {1}}}, Move{1, 0, {{2}, {2}}}, Move{2, 0, {{4}, {1}}}));
  EXPECT_THAT(plan.moves_to(1), IsEmpty());
  EXPECT_THAT(plan.moves_to(2), ElementsAre(Move{3, 2, {{7}, {1}}}));
  EXPECT_EQ(all_bytes(plan), (2 + 1 + 1 + 2) * 4);
}

TEST(Plan, TheFirstRankGivesAllTheirs) {
  const Plan plan = plan_from_first(Layout({8}, replicas(), {Partial{}, Shard{0}}));
  EXPECT_THAT(plan.moves_from(0), ElementsAre(Move{0, 0, {{0}, {4}}}, Move{0, 1, {{4}, {4}}}));
  for (int64_t rank = 1; rank < 4; ++rank) EXPECT_THAT(plan.moves_from(rank), IsEmpty());
  EXPECT_EQ(plan.fill(2), 0);
}

/// Elements that all ranks send, at once or through the layout halfway.
std::pair<int64_t, int64_t> at_once_and_halfway(const Layout& from, const Layout& to) {
  const auto between = halfway(from, to);
  const int64_t at_once = all_bytes(plan_redistribute(from, to)) / 4;
  if (!between) return {at_once, at_once};
  return {at_once, (all_bytes(plan_redistribute(from, *between)) +
                    all_bytes(plan_redistribute(*between, to))) /
                       4};
}

TEST(Halfway, SavesWhereMoreThanTwoRanksReduceWhatAllWant) {
  const Layout partial({8, 2}, four(), {Partial{}}), whole({8, 2}, four(), {Replicate{}});
  EXPECT_EQ(halfway(partial, whole), Layout({8, 2}, four(), {Shard{0}}));
  // 3 x 16 elements come to each of 4 ranks, or twice 3 x 4.
  EXPECT_EQ(at_once_and_halfway(partial, whole), std::pair(int64_t{192}, int64_t{96}));
  const MeshShape mesh{{"a", 3}, {"b", 2}};
  EXPECT_EQ(halfway(Layout({9, 4}, mesh, {Partial{}, Shard{0}}),
                    Layout({9, 4}, mesh, {Replicate{}, Shard{0}})),
            Layout({9, 4}, mesh, {Shard{1}, Shard{0}}));
}

TEST(Halfway, IsNowhereElse) {
  const Layout partial({8}, four(), {Partial{}});
  EXPECT_EQ(halfway(partial, Layout({8}, four(), {Shard{0}})), std::nullopt);
  EXPECT_EQ(halfway(partial, Layout({8}, four(), {Partial{}})), std::nullopt);
  EXPECT_EQ(halfway(Layout({8}, four(), {Shard{0}}), Layout({8}, four(), {Replicate{}})),
            std::nullopt);
  EXPECT_EQ(halfway(Layout({}, four(), {Partial{}}), Layout({}, four(), {Replicate{}})),
            std::nullopt)
      << "no dim to shard";
  const MeshShape two{{"dp", 2}};
  EXPECT_EQ(halfway(Layout({8}, two, {Partial{}}), Layout({8}, two, {Replicate{}})), std::nullopt)
      << "two ranks send the same either way";
}

// Of all pairs on a mesh of two axes.
TEST(Halfway, NeverSendsMore) {
  const MeshShape mesh{{"a", 3}, {"b", 2}};
  using levin::test::Way;
  const auto layouts = levin::test::layouts_of(
      {6, 4}, mesh, {{Way::kReplicate}, {Way::kPartial}, {Way::kShard, 0}, {Way::kShard, 1}});
  int64_t saved = 0;
  for (const Layout& from : layouts) {
    for (const Layout& to : layouts) {
      const auto [at_once, through] = at_once_and_halfway(from, to);
      EXPECT_LE(through, at_once) << from << " to " << to;
      saved += through < at_once ? 1 : 0;
    }
  }
  EXPECT_GT(saved, 5);
}

TEST(Plan, MistakesAreErrorsThatSayWhatWasWanted) {
  const Layout layout({8}, four(), {Shard{0}});
  EXPECT_THAT(
      error_of([&] { plan_redistribute(layout, Layout({9}, four(), {Shard{0}})); }),
      HasSubstr(
          "shard.plan: cannot redistribute from Layout [8] on dp=4: Shard(0: 2 2 2 2) to Layout "
          "[9] on dp=4"));
  EXPECT_THAT(error_of([&] { plan_redistribute(layout, Layout({8}, {{"dp", 2}}, {Shard{0}})); }),
              HasSubstr("wanted the same sizes and number of ranks"));
  const auto ask = [&](const Slice& slice) {
    return error_of(
        [&] { plan_slices(layout, {Slice{{0}, {1}}, slice, Slice{{0}, {1}}, Slice{{0}, {1}}}); });
  };
  EXPECT_EQ(ask({{7}, {1}}), "no error");
  EXPECT_EQ(ask({{8}, {0}}), "no error");
  EXPECT_THAT(ask({{7}, {2}}), HasSubstr("shard.slice: rank 1 asked for [7:9] of Layout [8]"));
  EXPECT_THAT(ask({{-1}, {2}}), HasSubstr("rank 1 asked for [-1:1]"));
  EXPECT_THAT(ask({{2}, {-1}}), HasSubstr("wanted a slice within the full tensor"));
  EXPECT_THAT(ask({{2, 0}, {1}}), HasSubstr("a slice of 2 offsets and 1 sizes"));
  EXPECT_THAT(error_of([&] { plan_slices(layout, {Slice{{0}, {1}}}); }),
              HasSubstr("shard.slice: got 1 slices"));
}

}  // namespace
