// ShardedTensor on two to four processes, by value, over every backend of CPUs of one host.
#include "levin/shard/sharded_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/shard/layouts.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::ReduceOp;
using levin::comm::DeviceMesh;
using levin::comm::MeshShape;
using levin::comm::ProcessGroup;
using levin::shard::distribute;
using levin::shard::Layout;
using levin::shard::Partial;
using levin::shard::Placement;
using levin::shard::Replicate;
using levin::shard::Shard;
using levin::shard::ShardedTensor;
using levin::test::connect;
using levin::test::error_of;
using levin::test::layouts_of;
using levin::test::local_of;
using levin::test::Numbers;
using levin::test::run_world;
using levin::test::Way;
using levin::test::whole_of;
using ::testing::Each;
using ::testing::HasSubstr;

class ShardedTensors : public ::testing::TestWithParam<std::string> {
 protected:
  using Body = std::function<std::string(const DeviceMesh& mesh)>;
  /// "" where all is well on all ranks.
  static std::vector<std::string> on(const MeshShape& shape, const Body& body) {
    return run_world(shape.size(), [&](int64_t, const auto&) {
      return body(DeviceMesh(connect(GetParam()), shape));
    });
  }
};

std::string text_of(const Layout& layout) { return to_text(layout); }

std::vector<Way> some_ways() {
  return {{Way::kReplicate}, {Way::kPartial},   {Way::kShard, 0},
          {Way::kShard, 1},  {Way::kRagged, 0}, {Way::kOwned, 1}};
}

MeshShape three() { return {{"dp", 3}}; }
MeshShape square() { return {{"dp", 2}, {"tp", 2}}; }

TEST_P(ShardedTensors, AreDistributedFromTheWholeOfEveryRankOrOfRankZero) {
  for (const MeshShape& shape : {MeshShape{{"dp", 2}}, three(), square()}) {
    EXPECT_THAT(
        on(shape,
           [](const DeviceMesh& mesh) {
             const at::Tensor whole = whole_of({5, 3}, at::kFloat);
             const at::Tensor if_first = mesh.rank() == 0 ? whole : at::Tensor();
             for (const Layout& layout : layouts_of({5, 3}, mesh.shape(), some_ways())) {
               const auto part = distribute(whole, mesh, layout.placements());
               const auto sent =
                   distribute(if_first, mesh, layout.placements(), {.from_rank_zero = true});
               for (const ShardedTensor& tensor : {part, sent}) {
                 if (tensor.layout() != layout) return "layout of " + text_of(layout);
                 if (tensor.local().sizes() != at::IntArrayRef(layout.slice(mesh.rank()).sizes)) {
                   return "sizes of " + text_of(layout);
                 }
                 if (!tensor.full().equal(whole)) return "values of " + text_of(layout);
               }
               if (!sent.local().equal(part.local())) return "parts of " + text_of(layout);
               if (part.local().is_alias_of(whole)) return std::string("memory of the whole");
             }
             return std::string();
           }),
        Each(""));
  }
}

TEST_P(ShardedTensors, GoFromAnyLayoutToAnyOther) {
  for (const MeshShape& shape : {three(), square()}) {
    EXPECT_THAT(on(shape,
                   [](const DeviceMesh& mesh) {
                     const at::Tensor whole = whole_of({5, 3});
                     const auto layouts = layouts_of({5, 3}, mesh.shape(), some_ways());
                     for (size_t i = 0; i < layouts.size(); i += 2) {
                       const at::Tensor local = local_of(layouts[i], mesh.rank());
                       const auto from = ShardedTensor::from_local(local, mesh, layouts[i]);
                       for (size_t k = i % 3; k < layouts.size(); k += 3) {
                         const auto to = from.redistribute(layouts[k].placements());
                         const bool same = to.layout() == layouts[k] && to.full().equal(whole);
                         if (!same) return text_of(layouts[i]) + " to " + text_of(layouts[k]);
                       }
                     }
                     return std::string();
                   }),
                Each(""));
  }
}

TEST_P(ShardedTensors, GoToAnotherMeshOfTheSameRanks) {
  EXPECT_THAT(
      on(square(),
         [](const DeviceMesh& mesh) {
           const DeviceMesh line(mesh.flat(), {{"all", 4}});
           const at::Tensor whole = whole_of({7, 3});
           const auto rows = distribute(whole, line, {Shard{0}});
           const auto both = rows.redistribute(mesh, {Shard{1}, Shard{0}});
           const at::Tensor own = part_of(whole, levin::shard::full_slice(rows.sizes()),
                                          both.layout().slice(mesh.rank()));
           if (!both.local().equal(own)) return std::string("values");
           return error_of([&] { rows.redistribute(mesh[{"dp"}], {Shard{0}}); });
         }),
      Each(HasSubstr(
          "shard.mesh: cannot redistribute from the mesh all=4 to dp=2, wanted the same ranks")));
}

TEST_P(ShardedTensors, GiveEachRankTheSliceThatItAsksFor) {
  EXPECT_THAT(on(square(),
                 [](const DeviceMesh& mesh) {
                   const at::Tensor whole = whole_of({5, 3});
                   for (const Layout& layout : layouts_of({5, 3}, mesh.shape(), some_ways())) {
                     const auto tensor =
                         ShardedTensor::from_local(local_of(layout, mesh.rank()), mesh, layout);
                     const int64_t own = mesh.rank();
                     const bool same =
                         tensor.slice({1, 1}, {3, 2}).equal(whole.slice(0, 1, 4).slice(1, 1)) &&
                         tensor.slice({own, 0}, {5 - own, 3}).equal(whole.slice(0, own)) &&
                         tensor.slice({5, 0}, {0, 3}).sizes() == at::IntArrayRef{0, 3};
                     if (!same) return text_of(layout);
                   }
                   return std::string();
                 }),
              Each(""));
}

// Sums of a large value go by shards, those of a small one at once; both have the bits of all_reduce.
TEST_P(ShardedTensors, AreReducedWithTheBitsOfAnAllReduce) {
  for (const int64_t rows : {3, 4000}) {
    EXPECT_THAT(on(MeshShape{{"dp", 4}},
                   [&](const DeviceMesh& mesh) {
                     for (const auto type : {at::kFloat, at::kBFloat16}) {
                       torch::manual_seed(mesh.rank());
                       const at::Tensor local = torch::randn({rows, 33}).to(type);
                       for (const auto op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin,
                                             ReduceOp::kMax, ReduceOp::kProduct}) {
                         const at::Tensor wanted = local.clone();
                         mesh.flat().all_reduce(wanted, op);
                         const auto partial = ShardedTensor::from_local(
                             local, mesh, Layout({rows, 33}, mesh.shape(), {Partial{op}}));
                         if (!partial.full().equal(wanted))
                           return "full " + levin::shard::to_text(op);
                         const auto part = partial.redistribute({Shard{0}});
                         const at::Tensor own =
                             part_of(wanted, levin::shard::full_slice(part.sizes()),
                                     part.layout().slice(mesh.rank()));
                         if (!part.local().equal(own)) return "part " + levin::shard::to_text(op);
                       }
                     }
                     return std::string();
                   }),
                Each(""));
  }
}

TEST_P(ShardedTensors, HoldAnyTypeAndShape) {
  EXPECT_THAT(on(three(),
                 [](const DeviceMesh& mesh) {
                   for (const auto type : {at::kBool, at::kByte, at::kInt, at::kHalf, at::kBFloat16,
                                           at::kDouble, at::kComplexFloat}) {
                     for (const Numbers& sizes : {Numbers{7, 3}, Numbers{2, 3}, Numbers{0, 3}}) {
                       const at::Tensor whole = whole_of(sizes).remainder(3).to(type);
                       const auto columns =
                           distribute(whole.t().contiguous().t(), mesh, {Shard{1}});
                       if (!columns.redistribute({Shard{0}}).full().equal(whole)) {
                         return std::string(c10::toString(type));
                       }
                     }
                     const at::Tensor one = whole_of({}).to(type);
                     const auto partial = distribute(one, mesh, {Partial{}});
                     if (!partial.full().equal(one)) return std::string("without dims");
                     if (!partial.slice({}, {}).equal(one))
                       return std::string("slice without dims");
                     if (mesh.rank() > 0 && !partial.local().eq(0).item<bool>()) {
                       return std::string("summand");
                     }
                   }
                   return std::string();
                 }),
              Each(""));
}

TEST_P(ShardedTensors, SendNothingWhereAllIsThere) {
  EXPECT_THAT(on(square(),
                 [](const DeviceMesh& mesh) {
                   const at::Tensor whole = whole_of({5, 3});
                   // Only one rank calls: it would wait for the others if anything were sent.
                   if (mesh.rank() == 1) {
                     const auto copies = distribute(whole, mesh, {Replicate{}, Replicate{}});
                     const auto rows = copies.redistribute({Shard{0}, Shard{0}});
                     if (rows.local().size(0) != 1) return std::string("rows");
                     if (!copies.full().equal(whole)) return std::string("values");
                     if (copies.full().is_alias_of(copies.local())) return std::string("memory");
                     copies.redistribute({Partial{}, Shard{1}});
                   }
                   mesh.flat().barrier();
                   return std::string();
                 }),
              Each(""));
}

TEST_P(ShardedTensors, AskedForTooMuchFailOnEveryRank) {
  EXPECT_THAT(
      on(three(),
         [](const DeviceMesh& mesh) {
           const auto tensor = distribute(whole_of({5, 3}), mesh, {Shard{0}});
           const bool is_wrong = mesh.rank() == 2;
           std::string text = error_of([&] { tensor.slice({is_wrong ? 3 : 0, 0}, {3, 3}); });
           return text +
                  error_of([&] { tensor.slice(is_wrong ? Numbers{0} : Numbers{0, 0}, {3, 3}); });
         }),
      Each(::testing::AllOf(HasSubstr("shard.slice: rank 2 asked for [3:6, 0:3] of Layout"),
                            HasSubstr("rank 2 asked for a slice of 1 offsets"))));
}

TEST_P(ShardedTensors, OfNothingOnRankZeroFailOnEveryRank) {
  EXPECT_THAT(on(three(),
                 [](const DeviceMesh& mesh) {
                   return error_of([&] {
                     distribute(mesh.rank() == 0 ? at::Tensor() : whole_of({3}), mesh, {Shard{0}},
                                {.from_rank_zero = true});
                   });
                 }),
              Each(HasSubstr("shard.local: got an undefined tensor on rank 0")));
}

INSTANTIATE_TEST_SUITE_P(, ShardedTensors, ::testing::Values("shm", "gloo"),
                         [](const auto& backend) { return backend.param; });

DeviceMesh mesh_of_one() { return DeviceMesh(ProcessGroup(), {{"dp", 1}}); }

TEST(ShardedTensor, IsTheWholeOnOneRank) {
  const at::Tensor whole = whole_of({5, 3}, at::kFloat);
  const auto tensor = distribute(whole, mesh_of_one(), {Shard{0}}, {.from_rank_zero = true});
  EXPECT_TRUE(tensor.local().equal(whole));
  EXPECT_TRUE(tensor.redistribute({Partial{}}).redistribute({Shard{1}}).full().equal(whole));
  EXPECT_TRUE(tensor.slice({1, 0}, {2, 2}).equal(whole.slice(0, 1, 3).slice(1, 0, 2)));
}

TEST(ShardedTensor, HoldsTheLocalTensorItIsMadeOfAndNoGraph) {
  const at::Tensor local = torch::ones({5, 3}, torch::requires_grad());
  const auto tensor =
      ShardedTensor::from_local(local, mesh_of_one(), Layout({5, 3}, {{"dp", 1}}, {Shard{0}}));
  EXPECT_TRUE(tensor.local().is_alias_of(local));
  EXPECT_FALSE(tensor.local().requires_grad());
  EXPECT_FALSE(distribute(local * 2, mesh_of_one(), {Shard{0}}).full().requires_grad());
}

TEST(ShardedTensor, PrintsItsPartAndLayout) {
  std::ostringstream out;
  out << distribute(whole_of({5, 3}, at::kFloat), mesh_of_one(), {Shard{0}});
  EXPECT_EQ(out.str(), "ShardedTensor Float [5, 3] of Layout [5, 3] on dp=1: Shard(0: 5)");
}

TEST(ShardedTensor, MistakesAreErrorsThatSayWhatWasWanted) {
  const DeviceMesh mesh = mesh_of_one();
  const Layout layout({5, 3}, {{"dp", 1}}, {Shard{0}});
  EXPECT_THAT(error_of([&] { ShardedTensor::from_local(torch::ones({4, 3}), mesh, layout); }),
              HasSubstr("shard.local: got sizes [4, 3] as the shard of rank 0 of Layout [5, 3] on "
                        "dp=1: Shard(0: 5), wanted sizes [5, 3]"));
  EXPECT_THAT(error_of([&] { ShardedTensor::from_local({}, mesh, layout); }),
              HasSubstr("got an undefined tensor"));
  EXPECT_THAT(error_of([&] { distribute({}, mesh, {Shard{0}}); }),
              HasSubstr("shard.local: got an undefined tensor, wanted the full tensor"));
  const Layout elsewhere({5, 3}, {{"tp", 1}}, {Shard{0}});
  EXPECT_THAT(
      error_of([&] { ShardedTensor::from_local(torch::ones({5, 3}), mesh, elsewhere); }),
      HasSubstr("shard.mesh: got Layout [5, 3] on tp=1: Shard(0: 5) with the device mesh dp=1"));
}

TEST(ShardedTensor, IsNotReducedWhereItsTypeHasNoSuchThing) {
  const MeshShape shape{{"dp", 2}};
  const auto full_of = [&](const at::Tensor& local, ReduceOp op) {
    return run_world(2, [&](int64_t, const auto&) {
      const DeviceMesh mesh(connect(), shape);
      const Layout layout(local.sizes().vec(), shape, {Partial{op}});
      return error_of([&] { ShardedTensor::from_local(local, mesh, layout).full(); });
    });
  };
  EXPECT_THAT(full_of(whole_of({4}), ReduceOp::kMean),
              Each(HasSubstr("shard.reduce: mean is not defined for Long")));
  EXPECT_THAT(full_of(torch::ones({4}, at::kComplexFloat), ReduceOp::kMax),
              Each(HasSubstr("shard.reduce: max is not defined for ComplexFloat")));
  EXPECT_THAT(full_of(whole_of({4}), ReduceOp::kMax), Each("no error"));
}

}  // namespace
