// The mpi backend under mpirun: every rank runs these tests, in step. One that fails in a rank
// makes that rank's exit code 1, and with it mpirun's.
#include "levin/comm/mpi/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "levin/comm/environment/environment.h"
#include "levin/comm/file_store/file_store.h"
#include "levin/comm/hierarchical/backend.h"
#include "levin/comm/shm/backend.h"
#include "tests/comm/backend_table.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace {

using levin::comm::make_mpi_backend;
using levin::test::BackendCollective;
using levin::test::check_collective;
using levin::test::difference;
using levin::test::kCollectives;
using levin::test::kMessages;
using levin::test::Tensor;
using levin::test::Tensors;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

constexpr auto kTimeout = std::chrono::seconds(60);

struct MpiPlace {
  int64_t rank, size;
};
MpiPlace place() {
  const auto rank = levin::comm::read_environment().rank;
  return {rank.rank, rank.world_size};
}

BackendPointer mpi_world(std::chrono::milliseconds timeout = kTimeout) {
  at::set_num_threads(1);
  return make_mpi_backend(place().rank, place().size, timeout);
}

class MpiTable : public testing::TestWithParam<BackendCollective> {};

TEST_P(MpiTable, DoesWhatC10dSays) { EXPECT_EQ(check_collective(GetParam(), *mpi_world()), ""); }

INSTANTIATE_TEST_SUITE_P(Comm, MpiTable, testing::ValuesIn(kCollectives),
                         [](const auto& info) { return info.param.name; });

class MpiMessages : public testing::TestWithParam<BackendCollective> {};

TEST_P(MpiMessages, ComeAsSent) { EXPECT_EQ(check_collective(GetParam(), *mpi_world()), ""); }

INSTANTIATE_TEST_SUITE_P(Comm, MpiMessages, testing::ValuesIn(kMessages),
                         [](const auto& info) { return info.param.name; });

/// A store of the same ranks, in rank 0's folder.
c10::intrusive_ptr<c10d::Store> store_of(c10d::Backend& mpi, const levin::test::Scratch& scratch) {
  Tensors path = {torch::zeros({512}, at::kByte)};
  const std::string own = (scratch / "store").string();
  std::memcpy(path[0].data_ptr(), own.data(), own.size());
  mpi.broadcast(path, {.rootRank = 0})->wait();
  return c10::make_intrusive<levin::comm::FileStore>(static_cast<const char*>(path[0].data_ptr()),
                                                     mpi.getSize());
}

/// The shm backend of the same ranks.
BackendPointer shm_beside(c10d::Backend& mpi, const levin::test::Scratch& scratch) {
  return levin::comm::make_shm_backend(store_of(mpi, scratch), mpi.getRank(), mpi.getSize(),
                                       kTimeout);
}

// As if the ranks were on several hosts: in order and mixed, as many on each and not.
class MpiBetweenHosts : public testing::TestWithParam<std::tuple<std::string, BackendCollective>> {
};

TEST_P(MpiBetweenHosts, DoesWhatC10dSays) {
  const auto& [letters, collective] = GetParam();
  const levin::test::Scratch scratch;
  const BackendPointer mpi = mpi_world();
  std::vector<std::string> hosts;
  for (int64_t i = 0; i < mpi->getSize(); ++i) hosts.emplace_back(1, letters.at(i));
  {
    const BackendPointer hierarchical = levin::comm::make_hierarchical_backend(
        store_of(*mpi, scratch), mpi->getRank(), levin::comm::HostLayout::of(hosts), kTimeout,
        {.carrier = levin::comm::Carrier::kMpi});
    EXPECT_EQ(check_collective(collective, *hierarchical), "");
  }
  mpi->barrier()->wait();  // rank 0's folder outlives the others' use of it
}

/// All of them on four ranks, and of fewer what no other number has.
std::vector<std::string> layouts() {
  if (place().size == 4) return {"AABB", "ABAB", "ABBB"};
  return {"ABBB"};
}

INSTANTIATE_TEST_SUITE_P(Comm, MpiBetweenHosts,
                         testing::Combine(testing::ValuesIn(layouts()),
                                          testing::ValuesIn(kCollectives)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::get<1>(info.param).name;
                         });

// A part of the ranks, from the last to the first: MPI counts them as mpirun did.
TEST(MpiBetweenHostsOf, SomeRanks) {
  const auto [rank, size] = place();
  if (size < 3) GTEST_SKIP() << "needs three ranks";
  const levin::test::Scratch scratch;
  const BackendPointer mpi = mpi_world();
  auto store = store_of(*mpi, scratch);
  if (rank > 0) {
    std::vector<int64_t> ranks;
    std::vector<std::string> hosts;
    for (int64_t from = size - 1; from > 0; --from) {
      ranks.push_back(from);
      hosts.emplace_back(from == 1 ? "A" : "B");
    }
    const BackendPointer others = levin::comm::make_hierarchical_backend(
        store, size - 1 - rank, levin::comm::HostLayout::of(hosts), kTimeout,
        {.carrier = levin::comm::Carrier::kMpi, .global_ranks = ranks});
    Tensors data = {torch::full({5}, rank)};
    others->allreduce(data)->wait();
    EXPECT_EQ(difference("sum", data[0], torch::full({5}, size * (size - 1) / 2)), "");
  }
  store.reset();
  mpi->barrier()->wait();
}

TEST(MpiBackend, SumsToTheSameBitsAsShm) {
  const levin::test::Scratch scratch;
  const BackendPointer mpi = mpi_world();
  BackendPointer shm = shm_beside(*mpi, scratch);
  const int64_t size = mpi->getSize();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t count : {1, 40, 5000, 700001}) {
      for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG}) {
        torch::manual_seed(int64_t{100} * mpi->getRank() + count);
        const Tensor data = torch::randn({size * count}).to(type);
        Tensors by_mpi = {data.clone()}, by_shm = {data.clone()};
        mpi->allreduce(by_mpi, {.reduceOp = op})->wait();
        shm->allreduce(by_shm, {.reduceOp = op})->wait();
        EXPECT_TRUE(torch::equal(by_mpi[0], by_shm[0])) << "all_reduce of " << count << type;
        Tensor part = torch::empty({count}, type), shm_part = part.clone(), whole = data.clone();
        mpi->_reduce_scatter_base(part, whole, {.reduceOp = op})->wait();
        shm->_reduce_scatter_base(shm_part, whole, {.reduceOp = op})->wait();
        EXPECT_TRUE(torch::equal(part, shm_part)) << "reduce_scatter of " << count << type;
        EXPECT_TRUE(torch::equal(whole, data));
        Tensors root = {data.clone()};
        mpi->reduce(root, {.reduceOp = op, .rootRank = 0})->wait();
        EXPECT_TRUE(torch::equal(root[0], mpi->getRank() == 0 ? by_mpi[0] : data));
      }
    }
  }
  shm.reset();
  mpi->barrier()->wait();
}

TEST(MpiBackend, CarriesBool) {
  const BackendPointer mpi = mpi_world();
  Tensors any = {torch::arange(1000).eq(mpi->getRank())};
  mpi->allreduce(any, {.reduceOp = c10d::ReduceOp::MAX})->wait();
  EXPECT_TRUE(torch::equal(any[0], torch::arange(1000).lt(mpi->getSize())));
}

TEST(MpiBackend, RunsInTheCallersThreadOrLater) {
  const BackendPointer mpi = mpi_world();
  for (const bool is_async : {false, true}) {
    Tensors data = {torch::ones({300000})};
    const auto work = mpi->allreduce(data, {.asyncOp = is_async});
    EXPECT_TRUE(is_async || work->isCompleted());
    work->wait();
    EXPECT_EQ(difference("all_reduce", data[0],
                         torch::full({300000}, static_cast<float>(mpi->getSize()))),
              "");
  }
}

TEST(MpiBackend, MakesGroupsOfSomeRanks) {
  const auto [rank, size] = place();
  const BackendPointer mpi = mpi_world();
  if (rank == 0) {
    const BackendPointer alone = make_mpi_backend(0, 1, kTimeout, {0});
    Tensors data = {torch::ones({5})};
    alone->allreduce(data)->wait();
    EXPECT_EQ(difference("alone", data[0], torch::ones({5})), "");
  } else {
    // From the last rank to rank 1.
    std::vector<int64_t> ranks;
    for (int64_t from = size - 1; from > 0; --from) ranks.push_back(from);
    const BackendPointer others = make_mpi_backend(size - 1 - rank, size - 1, kTimeout, ranks);
    Tensors data = {torch::full({5}, rank)};
    others->broadcast(data, {.rootRank = 0})->wait();
    EXPECT_EQ(difference("others", data[0], torch::full({5}, size - 1)), "");
  }
  mpi->barrier()->wait();
}

TEST(MpiBackend, SaysWhenRanksNameOtherGroups) {
  const auto [rank, size] = place();
  if (size != 3) GTEST_SKIP() << "needs three ranks";
  const BackendPointer mpi = mpi_world();
  if (rank < 2) {
    const std::vector<int64_t> ranks =
        rank == 0 ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 1};
    EXPECT_THAT(
        levin::test::error_of([&] { make_mpi_backend(rank, std::ssize(ranks), kTimeout, ranks); }),
        StartsWith("comm.mismatch: "));
  } else {
    EXPECT_THAT(levin::test::error_of([&] { make_mpi_backend(1, 2, kTimeout, {0, 2}); }),
                StartsWith("comm.mismatch: "));
  }
  mpi->barrier()->wait();
}

TEST(MpiBackend, RefusesARankThatMpirunDidNotGive) {
  const auto [rank, size] = place();
  EXPECT_THAT(levin::test::error_of([&] { make_mpi_backend(rank, size + 1, kTimeout); }),
              StartsWith("comm.mpi.rank: got rank"));
  EXPECT_THAT(levin::test::error_of([&] { make_mpi_backend(0, 2, kTimeout, {0, 0}); }),
              StartsWith("comm.mpi.rank: got rank 0 in a group, wanted each rank once"));
}

TEST(MpiBackend, SaysInAllRanksWhatDiffers) {
  const BackendPointer mpi = mpi_world();
  if (mpi->getSize() == 1) GTEST_SKIP() << "one rank cannot differ";
  Tensors data = {torch::ones({mpi->getRank() == 0 ? 7 : 70000})};
  EXPECT_THAT(levin::test::error_of([&] { mpi->allreduce(data)->wait(); }),
              StartsWith("comm.mismatch: collective 1: rank "));
  EXPECT_THAT(levin::test::error_of([&] { mpi->barrier()->wait(); }),
              HasSubstr("comm.closed: the group has already failed: comm.mismatch"));
}

TEST(MpiBackend, SaysWhatWasSentAndWhatExpected) {
  const auto [rank, size] = place();
  const BackendPointer mpi = mpi_world();
  if (size == 1) GTEST_SKIP() << "nobody to send to";
  if (rank == 1) {
    Tensors data = {torch::ones({3})};
    mpi->send(data, 0, 5)->wait();
  } else if (rank == 0) {
    Tensors data = {torch::ones({4})};
    EXPECT_THAT(levin::test::error_of([&] { mpi->recv(data, 1, 6)->wait(); }),
                StartsWith("comm.mismatch: rank 1 sent 3 x Float with tag 5 and rank 0 expects 4 x "
                           "Float with tag 6"));
    Tensors same = {torch::ones({3})};
    EXPECT_THAT(levin::test::error_of([&] { mpi->recv(same, 1, 5)->wait(); }),
                StartsWith("comm.closed: "));
  }
}

TEST(MpiBackend, RefusesAnOperationThatATypeHasNot) {
  const BackendPointer mpi = mpi_world();
  Tensors data = {torch::ones({3}, at::kInt)};
  const auto average = [&] { mpi->allreduce(data, {.reduceOp = c10d::ReduceOp::AVG})->wait(); };
  EXPECT_THAT(levin::test::error_of(average), StartsWith("comm.reduce: mean is not defined"));
  mpi->barrier()->wait();
}

// The whole job ends in the following: ctest runs each by itself and reads what mpirun says.

TEST(MpiJob, DISABLED_EndsAfterATimeout) {
  const BackendPointer mpi = mpi_world(std::chrono::milliseconds(300));
  if (place().rank == 1) std::this_thread::sleep_for(std::chrono::minutes(1));
  EXPECT_THAT(levin::test::error_of([&] { mpi->barrier()->wait(); }),
              StartsWith("comm.timeout: waited 0.3 s in barrier for "));
}

TEST(MpiJob, DISABLED_EndsWithARankThatExitsWithAnError) {
  const BackendPointer mpi = mpi_world();
  if (place().rank == 1) std::exit(3);
  mpi->barrier()->wait();
  ADD_FAILURE() << "rank 1 came to the barrier";
}

}  // namespace
