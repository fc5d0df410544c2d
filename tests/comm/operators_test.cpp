// Collectives by way of the dispatcher: the same as the group's own functions.
#include "levin/comm/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/comm/collectives/named_group.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::ReduceOp;
using levin::comm::call_all_reduce;
using levin::comm::call_wait;
using levin::comm::NamedGroup;
using levin::comm::operator_name;
using levin::comm::ProcessGroup;
using levin::test::connect;
using levin::test::error_id;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;

std::vector<at::Tensor> two_tensors(int64_t rank) {
  return {torch::full({5}, rank + 1.0), torch::full({2, 3}, 10.0 * static_cast<double>(rank))};
}

std::string differ_from(const std::vector<at::Tensor>& got, double first, double second) {
  const bool equal =
      at::equal(got[0], torch::full({5}, first)) && at::equal(got[1], torch::full({2, 3}, second));
  return equal ? "" : c10::str("got ", got);
}

TEST(CommOperators, ReduceAndBroadcastLists) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    const auto group = connect();
    const auto reduced = two_tensors(rank);
    call_all_reduce(reduced, group, ReduceOp::kMean);
    const auto broadcast = two_tensors(rank);
    levin::comm::call_broadcast(broadcast, group, 1);
    return differ_from(reduced, 1.5, 5) + differ_from(broadcast, 2, 10);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(CommOperators, AStartedReductionIsThereAfterTheWait) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    const auto group = connect();
    const auto data = two_tensors(rank), other = two_tensors(rank + 1);
    call_all_reduce(data, group, ReduceOp::kSum, levin::comm::Return::kAsync);
    call_all_reduce(other, group, ReduceOp::kMax, levin::comm::Return::kAsync);
    call_wait(data, group);
    call_wait(other, group);
    const std::string twice = error_id([&] { call_wait(other, group); });
    return differ_from(data, 3, 10) + differ_from(other, 3, 20) +
           (twice == "comm.wait" ? "" : twice);
  });
  EXPECT_THAT(words, Each(""));
}

/// Parts of 3 elements of rank 0 and of none of rank 1, sums of which are 0, 3, 6.
const std::vector<int64_t> kCounts = {3, 0};

std::string differ_from_sums(int64_t rank, const at::Tensor& part) {
  const at::Tensor wanted =
      rank == 0 ? torch::tensor({0., 3., 6.}) : torch::empty({0}, at::kDouble);
  return at::equal(part, wanted) ? "" : c10::str("got ", part, ", wanted ", wanted);
}

TEST(CommOperators, GatherAndReducePartsOfAnyLengths) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    const auto group = connect();
    const at::Tensor part = torch::empty({kCounts[size_t(rank)]}, at::kDouble);
    const at::Tensor whole = torch::arange(3.).to(at::kDouble) * (rank + 1.0);
    levin::comm::call_reduce_scatter(part, whole, kCounts, ReduceOp::kSum, group);
    const at::Tensor all = torch::empty({3}, at::kDouble);
    levin::comm::call_all_gather(all, part, kCounts, group);
    return differ_from_sums(rank, part) + differ_from_sums(0, all);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(CommOperators, StartedOnesOfPartsAreThereAfterTheWait) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    const auto group = connect();
    const auto named = NamedGroup::of(group);
    auto& dispatcher = c10::Dispatcher::singleton();
    const auto reduce_scatter =
        dispatcher.findSchemaOrThrow("levin::reduce_scatter_start_", "")
            .typed<void(const at::Tensor&, const at::Tensor&, at::IntArrayRef, c10::string_view,
                        const c10::intrusive_ptr<NamedGroup>&)>();
    const auto all_gather = dispatcher.findSchemaOrThrow("levin::all_gather_start_", "")
                                .typed<void(const at::Tensor&, const at::Tensor&, at::IntArrayRef,
                                            const c10::intrusive_ptr<NamedGroup>&)>();
    // Two at a time; rank 1's parts have no elements, and no address to know them by.
    const at::Tensor whole = torch::arange(3.).to(at::kDouble) * (rank + 1.0);
    const at::Tensor first = torch::empty({kCounts[size_t(rank)]}, at::kDouble);
    const at::Tensor second = torch::empty_like(first), all = torch::empty({3}, at::kDouble);
    reduce_scatter.call(first, whole, kCounts, "sum", named);
    reduce_scatter.call(second, whole, kCounts, "sum", named);
    call_wait({first}, group);
    call_wait({second}, group);
    all_gather.call(all, first, kCounts, named);
    call_wait({all}, group);
    const std::string twice = error_id([&] { call_wait({first}, group); });
    return differ_from_sums(rank, first) + differ_from_sums(rank, second) +
           differ_from_sums(0, all) + (twice == "comm.wait" ? "" : twice);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(CommOperators, GroupsHaveNames) {
  EXPECT_EQ(operator_name({}), "self");
  EXPECT_EQ(NamedGroup::called("self")->group().size(), 1);
  EXPECT_EQ(error_id([] { NamedGroup::called("no such")->group(); }), "comm.group");
  const auto words = run_world(2, [](int64_t rank, const auto&) -> std::string {
    auto group = connect();
    const std::string name = operator_name(group);
    auto pair = group.subgroup({0, 1});
    if (name == operator_name(pair)) return "two groups of one name";
    if (NamedGroup::called(name)->group().rank() != rank) return "another group";
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(CommOperators, AConstantHoldsItsGroupWithoutKeepingItAlive) {
  const auto words = run_world(2, [](int64_t rank, const auto&) -> std::string {
    std::optional<ProcessGroup> group = connect();
    std::optional<ProcessGroup> pair = group->subgroup({0, 1});
    const c10::IValue held(NamedGroup::of(*pair));
    if (NamedGroup::in(held) != NamedGroup::of(ProcessGroup(*pair))) return "a copy is another";
    if (NamedGroup::in(held) == NamedGroup::of(*group)) return "one for two groups";
    if (NamedGroup::in(held)->group().rank() != rank) return "another group";
    pair.reset();
    if (error_id([&] { NamedGroup::in(held)->group(); }) != "comm.group") return "it is there yet";
    return "";
  });
  EXPECT_THAT(words, Each(""));
  EXPECT_EQ(NamedGroup::in(c10::IValue("world")), nullptr);
}

TEST(CommOperators, ANameFromAFileGetsTheGroupThatConnectsUnderIt) {
  const auto words = run_world(2, [](int64_t rank, const auto&) -> std::string {
    const auto named = NamedGroup::called("world");
    if (error_id([&] { named->group(); }) != "comm.group") return "a group before there is one";
    const auto group = connect();
    if (NamedGroup::of(group) != named) return "another name";
    return named->group().rank() == rank ? "" : "another group";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(CommOperators, WordsOfOperationsAreChecked) {
  EXPECT_EQ(levin::comm::reduce_op_name(ReduceOp::kProduct), "product");
  EXPECT_EQ(levin::comm::reduce_op_named("max"), ReduceOp::kMax);
  EXPECT_THAT(error_of([] { levin::comm::reduce_op_named("average"); }),
              HasSubstr("comm.reduce_op: got 'average', wanted sum, mean"));
}

}  // namespace
