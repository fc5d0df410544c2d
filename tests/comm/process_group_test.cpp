// The thin type over the backends; what the backends themselves do is in backend_test.cpp.
#include "levin/comm/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "levin/comm/collectives/announcement.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::ReduceOp;
using levin::State;
using levin::comm::ProcessGroup;
using levin::comm::Return;
using levin::test::connect;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string differs(const at::Tensor& got, const at::Tensor& wanted) {
  return at::equal(got, wanted) ? "" : c10::str("got ", got, ", wanted ", wanted);
}

class ProcessGroupOver : public ::testing::TestWithParam<const char*> {};

TEST_P(ProcessGroupOver, ReducesInEveryWay) {
  EXPECT_THAT(run_world(3,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          std::string wrong;
                          for (const auto& [op, wanted] : {std::pair(ReduceOp::kSum, 9.0),
                                                           {ReduceOp::kMean, 3.0},
                                                           {ReduceOp::kMin, 2.0},
                                                           {ReduceOp::kMax, 4.0},
                                                           {ReduceOp::kProduct, 24.0}}) {
                            const at::Tensor data = torch::full({5}, rank + 2.0);
                            group.all_reduce(data, op);
                            wrong += differs(data, torch::full({5}, wanted));
                          }
                          return wrong;
                        }),
              Each(""));
}

TEST_P(ProcessGroupOver, ReducesSeveralTensorsInOneCall) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          const at::Tensor a = torch::full({3}, rank + 1.0);
                          const at::Tensor b = torch::full({2, 2}, 10.0 * rank);
                          group.all_reduce({a, b}, ReduceOp::kSum);
                          return differs(a, torch::full({3}, 3.0)) +
                                 differs(b, torch::full({2, 2}, 10.0));
                        }),
              Each(""));
}

/// Some go together on the way: small ones beside each other, of one type.
TEST_P(ProcessGroupOver, ReducesManyTensorsOfAllSizesAndTypesAsOneByOne) {
  EXPECT_THAT(run_world(3,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          torch::manual_seed(rank);
                          std::vector<at::Tensor> together;
                          for (const int64_t size : {5, 1, 0, 300, 2000000, 7, 5000, 600000, 3}) {
                            together.push_back(torch::randint(-9, 9, {size}, at::kFloat));
                            together.push_back(torch::randint(-9, 9, {size}, at::kFloat));
                            together.push_back(torch::randint(-9, 9, {size}, at::kLong));
                          }
                          std::vector<at::Tensor> apart;
                          for (const at::Tensor& one : together) apart.push_back(one.clone());
                          group.all_reduce(together, ReduceOp::kSum);
                          std::string words;
                          for (size_t i = 0; i < apart.size(); ++i) {
                            group.all_reduce(apart[i], ReduceOp::kSum);
                            words += differs(together[i], apart[i]);
                          }
                          return words;
                        }),
              Each(""));
}

/// Those that lie side by side on one rank and apart on another, of which nothing beside them is
/// touched.
TEST_P(ProcessGroupOver, ReducesManyTensorsWhereverTheyLie) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          const at::Tensor memory = torch::full({700010}, rank + 1.0);
                          const std::vector<at::Tensor> parts =
                              memory.narrow(0, 0, 700000).split_with_sizes({5, 600000, 99995});
                          std::vector<at::Tensor> data = parts;
                          if (rank == 1) data[1] = parts[1].clone();
                          group.all_reduce(data, ReduceOp::kSum);
                          std::string words =
                              differs(memory.narrow(0, 700000, 10), torch::full({10}, rank + 1.0));
                          for (const at::Tensor& one : data) {
                            words += differs(one, torch::full_like(one, 3.0));
                          }
                          return words;
                        }),
              Each(""));
}

TEST_P(ProcessGroupOver, AMeanThatWasStartedIsThereAfterTheWait) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          const at::Tensor data = torch::full({100000}, rank + 1.0);
                          auto work = group.all_reduce(data, ReduceOp::kMean, Return::kAsync);
                          work.wait();
                          return differs(data, torch::full({100000}, 1.5));
                        }),
              Each(""));
}

// A call that waits behind a started one may run in the thread of the queue.
TEST_P(ProcessGroupOver, ACallKeepsItsLabelBehindOneThatWasStarted) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          const at::Tensor large = torch::ones({100'000}), all = torch::ones({2});
                          for (int64_t i = 0; i < 200; ++i) {
                            if (i % 2 == rank) std::this_thread::yield();
                            auto work = group.all_reduce(large, ReduceOp::kMean, Return::kAsync);
                            const levin::comm::LabelScope label(i + 1);
                            group.all_gather(all, torch::full({1}, double(rank)));
                            work.wait();
                          }
                          return differs(all, torch::arange(2.0));
                        }),
              Each(""));
}

TEST_P(ProcessGroupOver, MovesPartsOfAnyShape) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          const at::Tensor part = torch::full({2, 3}, rank);
                          const at::Tensor whole = torch::empty({2, 2, 3}, part.options());
                          group.all_gather(whole, part);
                          const at::Tensor sum = torch::empty({2, 3}, part.options());
                          group.reduce_scatter(sum, whole, ReduceOp::kSum);
                          const at::Tensor from_first = torch::full({4}, rank);
                          group.broadcast(from_first, 0);
                          std::vector<at::Tensor> gathered;
                          if (rank == 1) gathered = {torch::empty({2, 3}), torch::empty({2, 3})};
                          group.gather(gathered, part.to(at::kFloat), 1);
                          const at::Tensor mine = torch::empty({2});
                          std::vector<at::Tensor> dealt;
                          if (rank == 0) dealt = {torch::zeros({2}), torch::ones({2})};
                          group.scatter(mine, dealt, 0);
                          group.barrier();
                          std::string wrong = differs(whole[0], torch::zeros_like(part)) +
                                              differs(whole[1], torch::ones_like(part)) +
                                              differs(sum, torch::full_like(part, 2 * rank)) +
                                              differs(from_first, torch::zeros_like(from_first)) +
                                              differs(mine, torch::full({2}, double(rank)));
                          if (rank == 1) wrong += differs(gathered[0], torch::zeros({2, 3}));
                          return wrong;
                        }),
              Each(""));
}

TEST_P(ProcessGroupOver, MovesPartsOfAnyLengths) {
  EXPECT_THAT(
      run_world(3,
                [&](int64_t rank, const auto&) {
                  auto group = connect(GetParam());
                  const std::vector<int64_t> counts = {2, 0, 5};
                  const auto own = counts[static_cast<size_t>(rank)];
                  const at::Tensor part = torch::full({own, 2}, rank + 1.0).select(1, 0);
                  const at::Tensor whole = torch::empty({7});
                  group.all_gather(whole, part, counts);
                  const at::Tensor all = torch::tensor({1., 1., 3., 3., 3., 3., 3.}, at::kFloat);
                  std::string wrong = differs(whole, all);
                  const at::Tensor sum = torch::empty({own}), mean = torch::empty({own});
                  auto work =
                      group.reduce_scatter(sum, whole, ReduceOp::kSum, counts, Return::kAsync);
                  group.reduce_scatter(mean, whole, ReduceOp::kMean, counts);
                  work.wait();
                  const auto theirs = all.split_with_sizes({2, 0, 5})[static_cast<size_t>(rank)];
                  return wrong + differs(sum, theirs * 3) + differs(mean, theirs);
                }),
      Each(""));
}

TEST_P(ProcessGroupOver, PartsThatDoNotFitAreErrors) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          const auto id = [&](const at::Tensor& whole,
                                              std::vector<int64_t> counts) {
                            return levin::test::error_id(
                                [&] { group.all_gather(whole, torch::ones({2}), counts); });
                          };
                          std::string wrong;
                          if (id(torch::ones({5}), {2, 2}) != "comm.tensor") wrong += "sum ";
                          if (id(torch::ones({2}), {2}) != "comm.tensor") wrong += "number ";
                          if (id(torch::ones({2}), {3, -1}) != "comm.tensor") wrong += "negative ";
                          const auto apart = torch::ones({5, 2}).select(1, 0);
                          const auto counts =
                              rank == 0 ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{3, 2};
                          if (id(apart, counts) != "comm.tensor") wrong += "apart ";
                          group.barrier();
                          return wrong;
                        }),
              Each(""));
}

TEST_P(ProcessGroupOver, PartsOfWhichTheRanksHaveOtherIdeasAreNamed) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          const auto counts =
                              rank == 0 ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{3, 2};
                          return error_of([&] {
                            group.reduce_scatter(torch::ones({2}), torch::ones({5}), ReduceOp::kSum,
                                                 counts);
                          });
                        }),
              Each(AllOf(StartsWith("comm.mismatch: "), HasSubstr("5 x Float in parts of 2,3"),
                         HasSubstr("5 x Float in parts of 3,2"))));
}

TEST_P(ProcessGroupOver, SendsToEachAsMuchAsItIsGiven) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = connect(GetParam());
                          const std::vector<at::Tensor> sent = {torch::full({1}, 10.0 * rank),
                                                                torch::full({3}, 10.0 * rank + 1)};
                          const int64_t length = rank == 0 ? 1 : 3;
                          const std::vector<at::Tensor> got = {torch::empty({length}),
                                                               torch::empty({length})};
                          group.all_to_all(got, sent);
                          return differs(got[0], torch::full({length}, double(rank))) +
                                 differs(got[1], torch::full({length}, 10.0 + rank));
                        }),
              Each(""));
}

TEST_P(ProcessGroupOver, CarriesObjects) {
  EXPECT_THAT(
      run_world(3,
                [&](int64_t rank, const auto&) {
                  auto group = connect(GetParam());
                  State inner;
                  inner.set("tensor", torch::arange(rank)).set("half", torch::ones({2}, at::kHalf));
                  State mine;
                  mine.set("rank", rank).set("word", std::string(size_t(rank) * 1000, 'x'));
                  mine.set("flag", rank == 1).set("number", 0.5 * double(rank));
                  mine.set("inner", inner).set("nothing", State());
                  const auto all = group.all_gather(mine);
                  for (int64_t from = 0; from < 3; ++from) {
                    const State& state = all[size_t(from)];
                    if (state.integer("rank") != from) return std::string("rank");
                    if (state.text("word").size() != size_t(from) * 1000)
                      return std::string("word");
                    if (state.boolean("flag") != (from == 1)) return std::string("flag");
                    if (state.number("number") != 0.5 * double(from)) return std::string("number");
                    if (!state.child("nothing").empty()) return std::string("nothing");
                    const auto wrong =
                        differs(state.child("inner").tensor("tensor"), torch::arange(from)) +
                        differs(state.child("inner").tensor("half"), torch::ones({2}, at::kHalf));
                    if (!wrong.empty()) return wrong;
                  }
                  const auto second = group.broadcast(mine, 1);
                  if (second.integer("rank") != 1) return std::string("broadcast");
                  const bool any = group.any(rank == 2), none = group.any(false);
                  return std::string(any && !none ? "" : "any");
                }),
      Each(""));
}

TEST_P(ProcessGroupOver, PartsOfTheRanksAreGroupsOfTheirOwn) {
  EXPECT_THAT(run_world(4,
                        [&](int64_t rank, const auto&) {
                          auto world = connect(GetParam());
                          auto even = world.subgroup({0, 2});
                          auto odd = world.subgroup({3, 1});
                          auto& mine = rank % 2 == 0 ? even : odd;
                          auto& other = rank % 2 == 0 ? odd : even;
                          if (other.size() != 1 || mine.size() != 2) return std::string("size");
                          if (mine.global_ranks()[size_t(mine.rank())] != rank) {
                            return std::string("rank");
                          }
                          const at::Tensor data = torch::full({1}, double(rank));
                          mine.all_reduce(data, ReduceOp::kSum);
                          // The first of {3, 1} is rank 3.
                          const at::Tensor first = torch::full({1}, double(rank));
                          mine.broadcast(first, 0);
                          return differs(data, torch::full({1}, rank % 2 == 0 ? 2.0 : 4.0)) +
                                 differs(first, torch::full({1}, rank % 2 == 0 ? 0.0 : 3.0));
                        }),
              Each(""));
}

TEST_P(ProcessGroupOver, ARankThatEndsIsAnErrorToTheOthers) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) {
    auto group = connect(GetParam());
    group.barrier();
    if (rank == 1) ::_exit(0);
    return error_of([&] {
      for (int i = 0; i < 3; ++i) group.all_reduce(torch::ones({100000}), ReduceOp::kSum);
    });
  });
  EXPECT_THAT(words[0], StartsWith("comm.peer: "));
}

INSTANTIATE_TEST_SUITE_P(Backends, ProcessGroupOver, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ProcessGroup, OfOneRankCopies) {
  ProcessGroup group;
  const at::Tensor data = torch::arange(4), copy = torch::empty_like(data);
  group.all_reduce(data, ReduceOp::kMean);
  group.all_gather(copy, data);
  group.barrier();
  EXPECT_TRUE(at::equal(copy, torch::arange(4)));
  EXPECT_EQ(group.all_gather(State()).size(), 1U);
  EXPECT_FALSE(group.any(false));
  EXPECT_EQ(group.allocate(7, at::kHalf).numel(), 7);
  copy.zero_();
  group.all_gather(copy, data, std::vector<int64_t>{4});
  EXPECT_TRUE(at::equal(copy, data));
  copy.zero_();
  group.reduce_scatter(copy, data, ReduceOp::kMean, std::vector<int64_t>{4});
  EXPECT_TRUE(at::equal(copy, data));
  EXPECT_EQ(group.subgroup({0}).size(), 1);
}

TEST(ProcessGroup, AutoIsSharedMemoryOnOneHost) {
  EXPECT_THAT(run_world(2, [](int64_t, const auto&) { return connect().backend(); }), Each("shm"));
}

TEST(ProcessGroup, ASecondOneOfTheSameProcessesHasKeysOfItsOwn) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          auto first = connect(), second = connect();
                          const at::Tensor data = torch::full({1}, double(rank));
                          first.all_reduce(data, ReduceOp::kSum);
                          second.all_reduce(data, ReduceOp::kSum);
                          return differs(data, torch::full({1}, 2.0));
                        }),
              Each(""));
}

TEST(ProcessGroup, AnUnknownBackendIsAnErrorThatNamesTheNearest) {
  EXPECT_THAT(
      run_world(2, [](int64_t, const auto&) { return connect("glo").backend(); }),
      Each(HasSubstr("comm.backend: got 'glo', wanted one of auto,shm,gloo,mpi,hierarchical")));
}

TEST(ProcessGroup, PartsWithWrongRanksAreErrors) {
  ProcessGroup group;
  EXPECT_THAT(error_of([&] { group.subgroup({1}); }), StartsWith("comm.subgroup: got rank 1"));
  EXPECT_THAT(error_of([&] { group.subgroup({0, 0}); }), HasSubstr("got rank 0 twice"));
}

TEST(ProcessGroup, WhatABackendRefusesIsAnErrorOfLevins) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          auto group = connect("gloo");
                          group.barrier();  // or one may be gone before the other is linked to it
                          group.all_reduce(torch::ones({2}).to_sparse(), ReduceOp::kMax);
                          return "";
                        }),
              Each(StartsWith("comm.tensor: got a Sparse tensor on cpu, wanted a dense one")));
}

}  // namespace
