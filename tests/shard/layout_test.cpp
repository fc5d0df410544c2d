#include "levin/shard/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "tests/support/error_of.h"

namespace {

using levin::ReduceOp;
using levin::comm::MeshShape;
using levin::shard::chunk_cuts;
using levin::shard::Layout;
using levin::shard::Partial;
using levin::shard::Placement;
using levin::shard::Replicate;
using levin::shard::Shard;
using levin::shard::Slice;
using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Placements = std::vector<Placement>;

template <class T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::vector<Slice> slices_of(const Layout& layout) {
  std::vector<Slice> slices;
  for (int64_t rank = 0; rank < layout.mesh().size(); ++rank) slices.push_back(layout.slice(rank));
  return slices;
}

TEST(Slice, PartsHaveTheirPlaceInTheWhole) {
  const Slice one{{2, 0}, {4, 6}}, other{{4, 3}, {8, 8}};
  EXPECT_EQ(intersection(one, other), (Slice{{4, 3}, {2, 3}}));
  EXPECT_EQ(intersection(other, one), (Slice{{4, 3}, {2, 3}}));
  EXPECT_EQ(intersection(one, Slice{{6, 0}, {1, 1}}).numel(), 0);
  EXPECT_TRUE(contains(one, Slice{{3, 1}, {3, 5}}));
  EXPECT_FALSE(contains(one, Slice{{3, 1}, {4, 5}}));
  EXPECT_TRUE(contains(one, Slice{{9, 9}, {0, 5}})) << "nothing lies anywhere";
  EXPECT_EQ((Slice{{}, {}}).numel(), 1) << "a tensor without dims";
  EXPECT_EQ(to_text(one), "[2:6, 0:6]");
}

TEST(Slice, PartsOfATensorAreViewsOfIt) {
  const at::Tensor whole = torch::arange(12 * 8).view({12, 8});
  const Slice held{{2, 1}, {6, 5}};
  const at::Tensor local =
      part_of(whole, levin::shard::full_slice(std::vector<int64_t>{12, 8}), held);
  const at::Tensor inner = part_of(local, held, {{4, 2}, {2, 3}});
  EXPECT_TRUE(inner.equal(whole.slice(0, 4, 6).slice(1, 2, 5)));
  EXPECT_TRUE(inner.is_alias_of(whole));
}

TEST(ChunkCuts, AreThoseOfTorchChunk) {
  for (int64_t length = 1; length <= 17; ++length) {
    for (int64_t parts = 1; parts <= 8; ++parts) {
      std::vector<int64_t> wanted;
      for (const at::Tensor& chunk : torch::arange(length).chunk(parts))
        wanted.push_back(chunk.numel());
      wanted.resize(static_cast<size_t>(parts), 0);  // torch.chunk leaves empty ones out
      EXPECT_EQ(chunk_cuts(length, parts), wanted) << length << " in " << parts;
    }
  }
  EXPECT_THAT(chunk_cuts(0, 3), ElementsAre(0, 0, 0));
}

TEST(Layout, AShardIsCutByChunksOrAsOneLikes) {
  EXPECT_THAT(slices_of(Layout({5, 3}, {{"dp", 3}}, {Shard{0}})),
              ElementsAre(Slice{{0, 0}, {2, 3}}, Slice{{2, 0}, {2, 3}}, Slice{{4, 0}, {1, 3}}));
  EXPECT_THAT(slices_of(Layout({5, 3}, {{"dp", 3}}, {Shard{0, {1, 0, 4}}})),
              ElementsAre(Slice{{0, 0}, {1, 3}}, Slice{{1, 0}, {0, 3}}, Slice{{1, 0}, {4, 3}}));
  EXPECT_THAT(slices_of(Layout({5, 3}, {{"dp", 2}}, {Shard{-1}})),
              ElementsAre(Slice{{0, 0}, {5, 2}}, Slice{{0, 2}, {5, 1}}));
}

TEST(Layout, WhatIsNotShardedIsWholeOnEveryRank) {
  const Layout layout({4, 6}, {{"dp", 2}, {"tp", 2}}, {Partial{}, Shard{1}});
  EXPECT_THAT(slices_of(layout), ElementsAre(Slice{{0, 0}, {4, 3}}, Slice{{0, 3}, {4, 3}},
                                             Slice{{0, 0}, {4, 3}}, Slice{{0, 3}, {4, 3}}));
  EXPECT_EQ(layout.numel(), 24);
  EXPECT_EQ(Layout({}, {{"dp", 2}}, {Replicate{}}).slice(1), (Slice{{}, {}}));
  EXPECT_EQ(Layout().slice(0).numel(), 1);
}

TEST(Layout, AxesThatShardOneDimCutEachOthersParts) {
  const MeshShape mesh{{"dp", 2}, {"tp", 2}};
  EXPECT_THAT(slices_of(Layout({7}, mesh, {Shard{0}, Shard{0}})),
              ElementsAre(Slice{{0}, {2}}, Slice{{2}, {2}}, Slice{{4}, {2}}, Slice{{6}, {1}}));
  EXPECT_THAT(slices_of(Layout({8}, mesh, {Shard{0}, Shard{0, {1, 3}}})),
              ElementsAre(Slice{{0}, {1}}, Slice{{1}, {3}}, Slice{{4}, {1}}, Slice{{5}, {3}}));
  EXPECT_THAT(slices_of(Layout({7}, mesh, {Shard{0, {5, 2}}, Shard{0, {1, 4, 2, 0}}})),
              ElementsAre(Slice{{0}, {1}}, Slice{{1}, {4}}, Slice{{5}, {2}}, Slice{{7}, {0}}));
}

// For any layout without summands: each element lies on as many ranks as there are copies.
TEST(Layout, PartsCoverTheWholeOnceForEachCopy) {
  const MeshShape mesh{{"a", 2}, {"b", 2}, {"c", 2}};
  const Placements choices = {Replicate{}, Shard{0}, Shard{1}};
  for (const Placement& a : choices) {
    for (const Placement& b : choices) {
      for (const Placement& c : choices) {
        const Layout layout({7, 5}, mesh, {a, b, c});
        const at::Tensor times = torch::zeros({7, 5}, torch::kLong);
        for (const Slice& slice : slices_of(layout)) {
          part_of(times, levin::shard::full_slice(layout.sizes()), slice).add_(1);
        }
        int64_t copies = 1;
        for (const Placement& placement : {a, b, c}) {
          if (std::holds_alternative<Replicate>(placement)) copies *= 2;
        }
        EXPECT_TRUE(times.eq(copies).all().item<bool>()) << layout;
      }
    }
  }
}

TEST(Layout, EqualMeansTheSamePartsHoweverTheyWereWritten) {
  const MeshShape line{{"dp", 4}}, grid{{"dp", 2}, {"tp", 2}};
  EXPECT_EQ(Layout({8, 4}, line, {Shard{0}}), Layout({8, 4}, line, {Shard{-2, {2, 2, 2, 2}}}));
  EXPECT_NE(Layout({8, 4}, line, {Shard{0}}), Layout({8, 4}, line, {Shard{0, {1, 3, 2, 2}}}));
  EXPECT_NE(Layout({8, 4}, line, {Shard{0}}), Layout({8, 4}, line, {Shard{1}}));
  EXPECT_NE(Layout({8, 4}, line, {Shard{0}}), Layout({8, 4}, {{"tp", 4}}, {Shard{0}}));
  EXPECT_EQ(Layout({8}, grid, {Shard{0}, Shard{0}}),
            Layout({8}, grid, {Shard{0}, Shard{0, {2, 2, 2, 2}}}));
  EXPECT_NE(Layout({8}, line, {Partial{}}), Layout({8}, line, {Partial{ReduceOp::kMax}}));
}

TEST(Layout, PrintsSizesMeshAndPlacements) {
  EXPECT_EQ(printed(Layout({512, 64}, {{"dp", 4}}, {Shard{0}})),
            "Layout [512, 64] on dp=4: Shard(0: 128 128 128 128)");
  EXPECT_EQ(printed(Layout({7}, {{"dp", 2}, {"tp", 2}}, {Shard{0}, Shard{0}})),
            "Layout [7] on dp=2, tp=2: Shard(0: 4 3), Shard(0: 2 2 2 1)");
  EXPECT_EQ(printed(Layout({}, {{"dp", 2}, {"tp", 2}}, {Replicate{}, Partial{ReduceOp::kMean}})),
            "Layout [] on dp=2, tp=2: Replicate, Partial(mean)");
  EXPECT_EQ(printed(Layout({33}, {{"dp", 8}}, {Shard{0}})),
            "Layout [33] on dp=8: Shard(0: 5 x6 3 0)");
  EXPECT_EQ(printed(Layout()), "Layout [] on one rank");
  EXPECT_EQ(printed(Placement(Shard{1})), "Shard(1)");
}

TEST(Layout, MistakesAreErrorsThatSayWhatWasWanted) {
  const auto make = [](std::vector<int64_t> sizes, const MeshShape& mesh, Placements placements) {
    return error_of([&] { Layout(sizes, mesh, placements); });
  };
  const MeshShape line{{"dp", 2}}, grid{{"dp", 2}, {"tp", 2}};
  EXPECT_THAT(
      make({4}, grid, {Shard{0}}),
      HasSubstr("shard.layout: got 1 placements for the mesh dp=2, tp=2, wanted one per axis"));
  EXPECT_THAT(make({4, -1}, line, {Shard{0}}), HasSubstr("shard.layout: got sizes [4, -1]"));
  for (const int64_t dim : {1, -2}) {
    EXPECT_THAT(make({4}, line, {Shard{dim}}),
                HasSubstr("along axis dp for a tensor of sizes [4], wanted a dim of the tensor"));
  }
  EXPECT_THAT(make({}, line, {Shard{0}}), HasSubstr("wanted a dim of the tensor"));
  EXPECT_THAT(make({4}, line, {Shard{0, {4}}}),
              HasSubstr("shard.layout: got 1 cuts for axis dp=2, wanted 2"));
  EXPECT_THAT(make({4}, line, {Shard{0, {1, 2}}}),
              HasSubstr("got Shard(0: 1 2) along axis dp, wanted cuts whose sum is 4"));
  EXPECT_THAT(make({4}, line, {Shard{0, {5, -1}}}), HasSubstr("wanted cuts whose sum is 4"));
  EXPECT_THAT(make({7}, grid, {Shard{0}, Shard{0, {2, 2}}}),
              HasSubstr("got Shard(0: 2 2) along axis tp, wanted cuts whose sum is 3"));
  EXPECT_THAT(
      make({7}, grid, {Shard{0}, Shard{0, {2, 2, 3}}}),
      HasSubstr("got 3 cuts for axis tp=2, wanted 2 cuts, or that many for each of 2 parts"));
  const Layout layout({4}, line, {Shard{0}});
  EXPECT_THAT(error_of([&] { layout.slice(2); }), HasSubstr("comm.mesh: got rank 2"));
  EXPECT_THAT(error_of([&] { layout.slice(std::vector<int64_t>{0, 0}); }),
              HasSubstr("comm.mesh: got coordinates 0,0"));
}

}  // namespace
