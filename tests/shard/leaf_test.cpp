#include "levin/shard/leaf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/divided.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::State;
using levin::TensorSlice;
using levin::comm::DeviceMesh;
using levin::shard::difference;
using levin::shard::DividedLeaf;
using levin::shard::Layout;
using levin::shard::layout_of;
using levin::shard::mesh_of;
using levin::shard::own_part;
using levin::shard::Shard;
using levin::test::connect;
using levin::test::error_id;
using levin::test::run_world;
using levin::test::told_by;
using ::testing::Each;

/// A mesh of this process alone.
DeviceMesh alone() { return {levin::comm::ProcessGroup(), {{"dp", 1}}}; }

TEST(Leaf, ThatIsWholeIsAsItIs) {
  const at::Tensor leaf = torch::ones({3, 2}).requires_grad_();
  EXPECT_EQ(layout_of(leaf), nullptr);
  EXPECT_FALSE(mesh_of(leaf).has_value());
  EXPECT_FALSE(levin::sharded(leaf).has_value());
  EXPECT_EQ(levin::shard::whole_sizes(leaf), (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(std::holds_alternative<at::Tensor>(levin::shard::state_value(leaf, leaf)));
  EXPECT_EQ(difference(leaf, State::Value(torch::ones({3, 2}))), "");
  EXPECT_EQ(difference(leaf, State::Value(torch::ones({2, 2}))), "got [2, 2], wanted [3, 2]");
}

TEST(Leaf, IsDividedForTheTimeOfTheObject) {
  const at::Tensor leaf = torch::ones({3, 2}).requires_grad_();
  {
    const DividedLeaf rows(leaf, alone(), Layout({3, 2}, {{"dp", 1}}, {Shard{0}}));
    ASSERT_NE(layout_of(leaf), nullptr);
    EXPECT_EQ(mesh_of(leaf)->size(), 1);
    const Layout again({3, 2}, {{"dp", 1}}, {Shard{0}});
    EXPECT_EQ(error_id([&] { DividedLeaf(leaf, alone(), again); }), "shard.leaf");
  }
  EXPECT_EQ(layout_of(leaf), nullptr);
}

TEST(Leaf, IsOfItsLayoutsMesh) {
  const at::Tensor leaf = torch::ones({3, 2});
  const Layout of_two({3, 2}, {{"dp", 2}}, {Shard{0}});
  EXPECT_EQ(error_id([&] { DividedLeaf(leaf, alone(), of_two); }), "shard.mesh");
}

TEST(Leaf, TakesItsPartOfAWholeAndOfAnySliceThatHasIt) {
  const auto said = run_world(3, [](int64_t rank, const auto&) -> std::string {
    const at::Tensor whole = torch::arange(10, torch::kFloat).view({5, 2});
    const DeviceMesh mesh(connect(), {{"dp", 3}});
    const at::Tensor leaf = whole.clone().requires_grad_();
    const auto rows = levin::test::divide(leaf, mesh, {Shard{0, {3, 2, 0}}});
    const int64_t begin = std::vector<int64_t>{0, 3, 5}[static_cast<size_t>(rank)];
    const int64_t count = std::vector<int64_t>{3, 2, 0}[static_cast<size_t>(rank)];
    const at::Tensor own = whole.narrow(0, begin, count);
    if (!torch::equal(own_part(leaf, State::Value(whole)), own)) return "of the whole";
    const auto value = levin::shard::state_value(leaf, leaf.detach());
    const auto& slice = std::get<TensorSlice>(value);
    if (slice.offsets != std::vector<int64_t>{begin, 0}) return "offsets";
    if (slice.sizes != std::vector<int64_t>{5, 2}) return "sizes";
    if (!torch::equal(own_part(leaf, value), own)) return "of the same slice";
    // The last rank has no row, which any slice has.
    const TensorSlice upper{whole.narrow(0, 0, 4), {5, 2}, {0, 0}};
    const std::string differs = difference(leaf, State::Value(upper));
    if (rank != 1) return torch::equal(own_part(leaf, upper), own) ? differs : "of the upper rows";
    const std::string told = told_by([&] { own_part(leaf, upper); });
    return told == "shard.local: got [0:4, 0:2] of [5, 2], wanted at least [3:5, 0:2]" ? "" : told;
  });
  EXPECT_THAT(said, Each(""));
}

}  // namespace
