// Every pair of layouts on meshes of up to 8 ranks, without processes: plans are carried out on parts
// of a whole and compared with what slicing the whole gives, and with the least that must be sent.
#include <gtest/gtest.h>

#include "levin/shard/exchange.h"
#include "levin/shard/plan.h"
#include "tests/shard/layouts.h"
#include "tests/shard/simulation.h"

namespace {

using levin::ReduceOp;
using levin::comm::MeshShape;
using levin::shard::Layout;
using levin::shard::Partial;
using levin::shard::Plan;
using levin::shard::plan_redistribute;
using levin::test::kNothing;
using levin::test::layouts_of;
using levin::test::local_of;
using levin::test::Numbers;
using levin::test::Ranks;
using levin::test::Simulation;
using levin::test::Way;
using levin::test::whole_of;

/// Elements that must come from elsewhere, where all partial axes have one operation: each that a rank
/// wants and does not have, and of what is reduced a summand from each other rank that has one.
int64_t must_be_sent(const Ranks& from, const Ranks& to, const Plan& plan) {
  const bool same_mesh = from.layout.mesh() == to.layout.mesh();
  int64_t num_parts = 1;
  for (size_t axis = 0; axis < from.layout.placements().size(); ++axis) {
    const auto& placement = from.layout.placements()[axis];
    if (!std::holds_alternative<Partial>(placement)) continue;
    if (same_mesh && placement == to.layout.placements()[axis]) continue;
    num_parts *= from.layout.mesh().axes()[axis].size;
  }
  int64_t elements = 0;
  for (size_t rank = 0; rank < to.values.size(); ++rank) {
    if (plan.fill(static_cast<int64_t>(rank))) continue;
    for (const int64_t element : to.elements[rank]) {
      const bool has_one = from.values[rank][static_cast<size_t>(element)] != kNothing;
      elements += num_parts - (has_one ? 1 : 0);
    }
  }
  return elements;
}

/// All pairs of the layouts; how many.
int64_t check_pairs(const std::vector<Layout>& layouts, bool one_operation = true) {
  std::vector<Ranks> all;
  for (const Layout& layout : layouts) all.emplace_back(layout);
  int64_t pairs = 0;
  for (const Ranks& from : all) {
    for (const Ranks& to : all) {
      Simulation simulation(from, to);
      const std::string fault = simulation.fault();
      EXPECT_EQ(fault, "") << from.layout << " to " << to.layout;
      if (one_operation) {
        EXPECT_EQ(simulation.sent(), must_be_sent(from, to, simulation.plan()))
            << from.layout << " to " << to.layout;
      }
      if (::testing::Test::HasFailure()) return pairs;  // the first is enough
      ++pairs;
    }
  }
  return pairs;
}

std::vector<Way> ways_of(int64_t num_dims) {
  std::vector<Way> ways = {{Way::kReplicate}, {Way::kPartial}};
  for (int64_t dim = 0; dim < num_dims; ++dim) ways.push_back({Way::kShard, dim});
  return ways;
}

std::vector<Way> all_ways_of(int64_t num_dims) {
  std::vector<Way> ways = ways_of(num_dims);
  for (int64_t dim = 0; dim < num_dims; ++dim) {
    ways.push_back({Way::kRagged, dim});
    ways.push_back({Way::kOwned, dim});
  }
  return ways;
}

TEST(Redistribution, OfAllPairsOnOneAxis) {
  int64_t pairs = 0;
  for (int64_t ranks = 1; ranks <= 8; ++ranks) {
    for (const Numbers& sizes : {Numbers{}, Numbers{0}, Numbers{1}, Numbers{11}, Numbers{5, 3},
                                 Numbers{0, 3}, Numbers{4, 1, 3}, Numbers{2, 9, 2}}) {
      pairs += check_pairs(layouts_of(sizes, {{"a", ranks}}, all_ways_of(std::ssize(sizes))));
    }
  }
  EXPECT_GT(pairs, 3000);
}

TEST(Redistribution, OfAllPairsOnTwoAxes) {
  int64_t pairs = 0;
  for (const auto& [a, b] : {std::pair<int64_t, int64_t>{2, 2}, {2, 3}, {3, 2}, {1, 4}, {2, 4}}) {
    for (const Numbers& sizes : {Numbers{}, Numbers{7}, Numbers{5, 3}}) {
      pairs += check_pairs(layouts_of(sizes, {{"a", a}, {"b", b}}, all_ways_of(std::ssize(sizes))));
    }
  }
  pairs += check_pairs(layouts_of({3, 2, 2}, {{"a", 2}, {"b", 2}}, all_ways_of(3)));
  EXPECT_GT(pairs, 30000);
}

TEST(Redistribution, OfAllPairsOnThreeAxes) {
  const MeshShape mesh{{"a", 2}, {"b", 2}, {"c", 2}};
  std::vector<Way> ways = ways_of(1);
  ways.push_back({Way::kRagged, 0});
  ways.push_back({Way::kOwned, 0});
  int64_t pairs = check_pairs(layouts_of({13}, mesh, ways));
  pairs += check_pairs(layouts_of({3, 2}, mesh, ways_of(2)));
  pairs += check_pairs(layouts_of({3, 1, 2}, mesh, ways_of(3)));
  EXPECT_GT(pairs, 30000);
}

TEST(Redistribution, BetweenMeshesOfTheSameRanks) {
  std::vector<Layout> layouts;
  for (const MeshShape& mesh :
       {MeshShape{{"a", 8}}, MeshShape{{"a", 2}, {"b", 4}}, MeshShape{{"b", 4}, {"a", 2}},
        MeshShape{{"a", 2}, {"b", 2}, {"c", 2}}}) {
    const auto more = layouts_of({7}, mesh, ways_of(1));
    layouts.insert(layouts.end(), more.begin(), more.end());
  }
  EXPECT_GT(check_pairs(layouts), 2000);
}

// Operations that do not commute stand on neighbouring axes: what is reduced first matters.
TEST(Redistribution, OfEveryReduction) {
  std::vector<Way> ways = {{Way::kReplicate}, {Way::kShard}};
  for (const auto op :
       {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    ways.push_back({.kind = Way::kPartial, .op = op});
  }
  int64_t pairs = check_pairs(layouts_of({5}, {{"a", 3}}, ways), false);
  pairs += check_pairs(layouts_of({5}, {{"a", 2}, {"b", 3}}, ways), false);
  ways = {{Way::kReplicate}};
  for (const auto op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct}) {
    ways.push_back({.kind = Way::kPartial, .op = op});
  }
  pairs += check_pairs(layouts_of({1}, {{"a", 2}, {"b", 2}, {"c", 2}}, ways), false);
  EXPECT_GT(pairs, 6000);
}

/// The ranks' new parts, by the functions that exchange() is made of.
std::vector<at::Tensor> carried_out(const Plan& plan, const std::vector<at::Tensor>& locals) {
  std::vector<std::vector<at::Tensor>> sent;
  for (size_t rank = 0; rank < locals.size(); ++rank) {
    sent.push_back(pack(plan, static_cast<int64_t>(rank), locals[rank]));
  }
  std::vector<at::Tensor> results;
  for (size_t rank = 0; rank < locals.size(); ++rank) {
    std::vector<at::Tensor> received;
    for (const auto& from : sent) received.push_back(from[rank].flatten());
    results.push_back(unpack(plan, static_cast<int64_t>(rank), locals[rank], received));
  }
  return results;
}

/// The same values and sizes, one element a column in memory.
at::Tensor scattered(const at::Tensor& tensor) {
  return at::stack({tensor, tensor}, -1).select(-1, 0);
}

TEST(Redistribution, OfTensorsIsThatOfThePlan) {
  for (const MeshShape& mesh : {MeshShape{{"a", 4}}, MeshShape{{"a", 2}, {"b", 3}}}) {
    std::vector<Way> ways = all_ways_of(2);
    ways.push_back({.kind = Way::kPartial, .op = ReduceOp::kMax});
    const std::vector<Layout> layouts = layouts_of({5, 3}, mesh, ways);
    std::vector<std::vector<at::Tensor>> locals;
    for (const Layout& layout : layouts) {
      locals.emplace_back();
      for (int64_t rank = 0; rank < mesh.size(); ++rank) {
        locals.back().push_back(scattered(local_of(layout, rank)));
      }
    }
    const at::Tensor whole = whole_of({5, 3});
    for (size_t from = 0; from < layouts.size(); ++from) {
      for (size_t to = 0; to < layouts.size(); to += 3) {  // one in three: pairs stand above
        const auto got = carried_out(plan_redistribute(layouts[from], layouts[to]), locals[from]);
        const std::vector<levin::shard::Placement> all(mesh.num_axes(), levin::shard::Replicate{});
        const Layout replicated({5, 3}, mesh, all);
        const auto wholes = carried_out(plan_redistribute(layouts[to], replicated), got);
        for (size_t rank = 0; rank < got.size(); ++rank) {
          ASSERT_EQ(got[rank].sizes(), at::IntArrayRef(layouts[to].slice(int64_t(rank)).sizes));
          ASSERT_TRUE(got[rank].is_contiguous());
          ASSERT_TRUE(wholes[rank].equal(whole)) << layouts[from] << " to " << layouts[to];
        }
      }
    }
  }
}

}  // namespace
