// Collectives by way of the dispatcher: the same as the group's own functions.
#include "levin/comm/operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "levin/comm/collectives/named_group.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::ReduceOp;
using levin::comm::call_all_gather;
using levin::comm::call_all_reduce;
using levin::comm::call_all_to_all;
using levin::comm::call_recv;
using levin::comm::call_reduce_scatter;
using levin::comm::call_send;
using levin::comm::call_wait;
using levin::comm::NamedGroup;
using levin::comm::operator_name;
using levin::comm::ProcessGroup;
using levin::comm::Return;
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
constexpr std::array<int64_t, 2> kCounts = {3, 0};

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
    // Two at a time; rank 1's parts have no elements, and no address to know them by.
    const at::Tensor whole = torch::arange(3.).to(at::kDouble) * (rank + 1.0);
    const at::Tensor first = torch::empty({kCounts[size_t(rank)]}, at::kDouble);
    const at::Tensor second = torch::empty_like(first), all = torch::empty({3}, at::kDouble);
    auto one = call_reduce_scatter(first, whole, kCounts, ReduceOp::kSum, group, Return::kAsync);
    auto two = call_reduce_scatter(second, whole, kCounts, ReduceOp::kSum, group, Return::kAsync);
    two.wait();
    one.wait();
    one.wait();  // once more does nothing
    call_all_gather(all, first, kCounts, group, Return::kAsync).wait();
    const std::string twice = error_id([&] { call_wait({first}, group); });
    return differ_from_sums(rank, first) + differ_from_sums(rank, second) +
           differ_from_sums(0, all) + (twice == "comm.wait" ? "" : twice);
  });
  EXPECT_THAT(words, Each(""));
}

std::string differ(const at::Tensor& got, const at::Tensor& wanted) {
  return at::equal(got, wanted) ? "" : c10::str("got ", got, ", wanted ", wanted);
}

/// Rank 0 sends 1 element to itself and 2 to rank 1, which sends 3 to rank 0 and none to itself.
TEST(CommOperators, ExchangePartsOfAnyLengths) {
  for (const Return when : {Return::kDone, Return::kAsync}) {
    for (const char* backend : {"shm", "gloo"}) {
      const auto words = run_world(2, [&](int64_t rank, const auto&) {
        const auto group = connect(backend);
        const std::vector<int64_t> sent_counts[] = {{1, 2}, {3, 0}};
        const std::vector<int64_t> received_counts[] = {{1, 3}, {2, 0}};
        const at::Tensor sent = torch::arange(3) + 10 * rank;
        const at::Tensor received = torch::empty({rank == 0 ? 4 : 2}, at::kLong);
        call_all_to_all(received, sent, received_counts[rank], sent_counts[rank], group, when)
            .wait();
        return differ(received, rank == 0 ? torch::tensor({0, 10, 11, 12}) : torch::tensor({1, 2}));
      });
      EXPECT_THAT(words, Each("")) << backend;
    }
  }
}

TEST(CommOperators, ExchangesOfOneRankAreCopiesAndCountsAreChecked) {
  const at::Tensor sent = torch::arange(3), received = torch::empty({3}, at::kLong);
  const std::vector<int64_t> counts = {3}, wrong = {2}, two = {1, 2};
  call_all_to_all(received, sent, counts, counts, {}, Return::kAsync).wait();
  EXPECT_TRUE(at::equal(received, sent));
  EXPECT_EQ(error_id([&] { call_all_to_all(received, sent, counts, wrong, {}); }), "comm.tensor");
  EXPECT_EQ(error_id([&] { call_all_to_all(received, sent, two, counts, {}); }), "comm.tensor");
  EXPECT_EQ(error_id([&] { call_all_to_all(received, sent.to(at::kFloat), counts, counts, {}); }),
            "comm.tensor");
}

/// Both send before they receive: a send that is under way waits for nobody.
TEST(CommOperators, SendAndReceive) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto words = run_world(2, [&](int64_t rank, const auto&) {
      const auto group = connect(backend);
      const at::Tensor mine = torch::full({4}, rank + 1.0), theirs = torch::zeros({4});
      auto sent = call_send(mine, 1 - rank, 7, group, Return::kAsync);
      auto received = call_recv(theirs, 1 - rank, 7, group, Return::kAsync);
      received.wait();
      sent.wait();
      const at::Tensor passed = torch::full({2}, rank + 5.0);
      if (rank == 0) call_send(passed, 1, 0, group);
      if (rank == 1) call_recv(passed, 0, 0, group);
      return differ(theirs, torch::full({4}, 2.0 - rank)) + differ(passed, torch::full({2}, 5.0));
    });
    EXPECT_THAT(words, Each("")) << backend;
  }
}

/// Two collectives are under way on parts of one buffer, and end in the other order.
TEST(CommOperators, TwoAreUnderWayOnPartsOfABuffer) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    const auto group = connect();
    const at::Tensor buffer = torch::zeros({4});
    const std::vector<int64_t> counts = {1, 1};
    const at::Tensor part = torch::full({1}, rank + 1.0), other = part * 10;
    auto low = call_all_gather(buffer.slice(0, 0, 2), part, counts, group, Return::kAsync);
    auto high = call_all_gather(buffer.slice(0, 2, 4), other, counts, group, Return::kAsync);
    high.wait();
    low.wait();
    return differ(buffer, torch::tensor({1., 2., 10., 20.}));
  });
  EXPECT_THAT(words, Each(""));
}

TEST(CommOperators, ABarrierShowsWhatOthersWroteToSharedMemory) {
  const auto words = run_world(2, [](int64_t rank, const auto&) {
    auto group = connect("shm");
    const std::vector<int64_t> counts = {2, 1};
    const levin::comm::SharedTensor shared = group.share(counts, at::kFloat);
    shared.own.fill_(rank + 1.0);
    levin::comm::call_barrier({shared.whole}, group);
    const std::string word = differ(shared.whole, torch::tensor({1., 1., 2.}));
    levin::comm::call_barrier({shared.whole}, group);
    return word;
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
