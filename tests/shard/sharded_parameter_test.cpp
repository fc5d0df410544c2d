// A parameter that is this rank's part of a whole: who asks is told so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/shard/sharded_tensor.h"
#include "tests/support/divided.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::State;
using levin::TensorSlice;
using levin::comm::DeviceMesh;
using levin::shard::difference;
using levin::shard::Layout;
using levin::shard::layout_of;
using levin::shard::mesh_of;
using levin::shard::own_part;
using levin::shard::register_shard;
using levin::shard::Shard;
using levin::test::connect;
using levin::test::error_of;
using levin::test::run_world;
using levin::test::told_by;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DeviceMesh alone() { return DeviceMesh({}, {{"dp", 1}}); }

TEST(ShardedParameter, SaysWhatALeafIsAPartOfForItsTime) {
  const at::Tensor leaf = torch::randn({4, 3}).requires_grad_();
  EXPECT_EQ(levin::shard::layout_of(leaf), nullptr);
  EXPECT_FALSE(levin::sharded(leaf).has_value());
  {
    const auto divided = register_shard(leaf, alone(), Layout({4, 3}, {{"dp", 1}}, {Shard{0}}));
    ASSERT_NE(levin::shard::layout_of(leaf), nullptr);
    EXPECT_THAT(levin::shard::whole_sizes(leaf), ElementsAre(4, 3));
    EXPECT_TRUE(at::equal(levin::sharded(leaf)->full(), leaf.detach()));
    EXPECT_THAT(error_of([&] {
                  const auto again =
                      register_shard(leaf, alone(), Layout({4, 3}, {{"dp", 1}}, {Shard{0}}));
                }),
                HasSubstr("shard.leaf"));
    EXPECT_NE(levin::shard::layout_of(leaf), nullptr) << "the failed one takes nothing away";
  }
  EXPECT_EQ(levin::shard::layout_of(leaf), nullptr);
  EXPECT_TRUE(std::holds_alternative<at::Tensor>(levin::shard::state_value(leaf, leaf.detach())));
}

TEST(ShardedParameter, OfAnotherMeshIsRefused) {
  const at::Tensor leaf = torch::randn({4, 3});
  EXPECT_THAT(error_of([&] {
                const auto divided =
                    register_shard(leaf, alone(), Layout({4, 3}, {{"dp", 2}}, {Shard{0}}));
              }),
              HasSubstr("shard.mesh"));
}

TEST(ShardedParameter, GoesIntoStatesAsASliceAndTakesItsRowsOfWhatComes) {
  const auto words = run_world(3, [](int64_t rank, const auto&) -> std::string {
    const std::vector<int64_t> cuts = {3, 0, 2};
    const DeviceMesh mesh(connect("shm"), {{"dp", 3}});
    const at::Tensor whole = torch::arange(10.0).view({5, 2});
    const int64_t first = rank == 0 ? 0 : 3;
    const int64_t rows = cuts[static_cast<size_t>(rank)];
    const at::Tensor leaf = whole.narrow(0, first, rows).clone();
    const auto divided = register_shard(leaf, mesh, Layout({5, 2}, {{"dp", 3}}, {Shard{0, cuts}}));
    const State::Value value = levin::shard::state_value(leaf, leaf);
    const auto* slice = std::get_if<TensorSlice>(&value);
    if (slice == nullptr || slice->sizes != std::vector<int64_t>{5, 2} ||
        slice->offsets != std::vector<int64_t>{first, 0})
      return "the slice";
    if (!at::equal(levin::shard::own_part(leaf, whole), leaf)) return "rows of the whole";
    const TensorSlice more{whole.narrow(0, rank == 0 ? 0 : 2, 3), {5, 2}, {rank == 0 ? 0 : 2, 0}};
    if (!at::equal(levin::shard::own_part(leaf, more), leaf)) return "rows of a larger slice";
    const std::string other = error_of([&] { levin::shard::own_part(leaf, at::zeros({5, 3})); });
    if (other.find("wanted [5, 2]") == std::string::npos) return other;
    const TensorSlice less{whole.narrow(0, 1, 1), {5, 2}, {1, 0}};
    const std::string lacks = error_of([&] { levin::shard::own_part(leaf, less); });
    if (rows > 0 && lacks.find("shard.local") == std::string::npos) return lacks;
    return at::equal(levin::sharded(leaf)->full(), whole) ? "" : "the whole";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShardedParameter, IsNoneThatIsWhole) {
  const at::Tensor leaf = torch::ones({3, 2}).requires_grad_();
  EXPECT_EQ(layout_of(leaf), nullptr);
  EXPECT_FALSE(mesh_of(leaf).has_value());
  EXPECT_FALSE(levin::sharded(leaf).has_value());
  EXPECT_EQ(levin::shard::whole_sizes(leaf), (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(std::holds_alternative<at::Tensor>(levin::shard::state_value(leaf, leaf)));
  EXPECT_EQ(difference(leaf, State::Value(torch::ones({3, 2}))), "");
  EXPECT_EQ(difference(leaf, State::Value(torch::ones({2, 2}))), "got [2, 2], wanted [3, 2]");
}

TEST(ShardedParameter, TakesItsPartOfAWholeAndOfAnySliceThatHasIt) {
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
