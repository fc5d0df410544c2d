// What a rank of the hierarchical backend asks of the store and opens, from its start on: for runs
// of 1,024 ranks both have to be few.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <filesystem>

#include "levin/comm/file_store/file_store.h"
#include "levin/comm/gloo/gloo.h"
#include "levin/comm/hierarchical/backend.h"
#include "tests/comm/backend_table.h"
#include "tests/comm/counting_store.h"
#include "tests/comm/ranks.h"

namespace {

using levin::comm::HostLayout;
using levin::test::CountingStore;
using levin::test::difference;
using levin::test::on_ranks;
using levin::test::run_ranks;
using levin::test::Tensors;
using ::testing::Each;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

constexpr auto kStartTimeout = std::chrono::seconds(60);

HostLayout layout_of(int64_t hosts, int64_t per_host) {
  std::vector<std::string> identities;
  for (int64_t rank = 0; rank < hosts * per_host; ++rank) {
    identities.push_back("host " + std::to_string(rank / per_host));
  }
  return HostLayout::of(identities);
}

BackendPointer start(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                     const HostLayout& layout) {
  return levin::comm::make_hierarchical_backend(store, rank, layout, kStartTimeout,
                                                {.own_address = "127.0.0.1"});
}

/// What training does: small and large sums, gathers, broadcasts of any rank's.
std::string talk(c10d::Backend& backend) {
  const int64_t rank = backend.getRank(), size = backend.getSize();
  std::string wrong;
  for (const int64_t count : {5, 40000}) {
    Tensors data = {torch::full({count}, rank)};
    backend.allreduce(data)->wait();
    wrong += difference("all_reduce", data[0], torch::full({count}, size * (size - 1) / 2));
  }
  for (const int64_t root : {int64_t{0}, size - 1}) {
    Tensors data = {torch::full({3}, rank)};
    backend.broadcast(data, {.rootRank = root})->wait();
    wrong += difference("broadcast", data[0], torch::full({3}, root));
    backend.reduce(data, {.rootRank = root})->wait();
    std::vector<Tensors> gathered;
    if (rank == root) {
      gathered.emplace_back();
      for (int64_t from = 0; from < size; ++from)
        gathered[0].push_back(torch::zeros({1}, at::kLong));
    }
    Tensors mine = {torch::full({1}, rank)};
    backend.gather(gathered, mine, {.rootRank = root})->wait();
    if (rank == root) wrong += difference("gather", torch::cat(gathered[0]), torch::arange(size));
    backend.scatter(mine, gathered, {.rootRank = root})->wait();
  }
  at::Tensor all = torch::zeros({size}, at::kLong), own = torch::full({1}, rank);
  backend._allgather_base(all, own)->wait();
  wrong += difference("all_gather", all, torch::arange(size));
  backend._reduce_scatter_base(own, all)->wait();
  wrong += difference("reduce_scatter", own, torch::full({1}, rank * size));
  backend.barrier()->wait();
  return wrong;
}

int64_t requests_of(int64_t hosts, int64_t per_host) {
  auto store = c10::make_intrusive<CountingStore>();
  const HostLayout layout = layout_of(hosts, per_host);
  const auto words = on_ranks(hosts * per_host, [&](int64_t rank) {
    const BackendPointer backend = start(store, rank, layout);
    return talk(*backend);
  });
  EXPECT_THAT(words, Each(""));
  return store->requests();
}

class HierarchicalStart : public testing::Test {
 protected:
  // All ranks' sockets are this process'.
  void SetUp() override {
    rlimit limit = {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    at::set_num_threads(1);
  }
};

TEST_F(HierarchicalStart, AsksTheStoreAFewTimesARank) {
  EXPECT_LE(requests_of(4, 4), 16 * 8);
  EXPECT_LE(requests_of(4, 16), 64 * 8);
  EXPECT_LE(requests_of(16, 4), 64 * 8);
}

int64_t num_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all)) - 1;  // one is the iterator's
}

/// A socket to each rank of its host in the first one, else to that one; an event that ends the
/// watching; memory for messages; gloo's own (a listener, what waits for it, and a pipe), and
/// a socket to each other host.
int64_t descriptors_of(int64_t hosts, int64_t per_host, bool is_first) {
  constexpr int64_t kOfGloo = 4;
  const int64_t links = is_first ? per_host - 1 : 1;
  return links + 1 + 1 + kOfGloo + hosts - 1;
}

TEST(HierarchicalDescriptors, AreOneForEachRankThatIsTalkedTo) {
  for (const auto& [hosts, per_host] : {std::pair<int64_t, int64_t>{4, 2}, {2, 4}, {3, 3}}) {
    const HostLayout layout = layout_of(hosts, per_host);
    const auto words = run_ranks(hosts * per_host, [&](int64_t rank, const auto& folder) {
      at::set_num_threads(1);
      const auto store =
          c10::make_intrusive<levin::comm::FileStore>(folder / "store", layout.host_of.size());
      const int64_t before = num_descriptors();
      const BackendPointer backend = start(store, rank, layout);
      const std::string wrong = talk(*backend);
      const int64_t opened = num_descriptors() - before;
      backend->barrier()->wait();
      return wrong + std::to_string(opened);
    });
    for (int64_t rank = 0; rank < hosts * per_host; ++rank) {
      EXPECT_EQ(words[static_cast<size_t>(rank)],
                std::to_string(descriptors_of(hosts, per_host, rank % per_host == 0)))
          << rank << " of " << hosts << " hosts";
    }
  }
}

TEST(HierarchicalDescriptors, OfARankAmong1024AreBelow100) {
  constexpr int64_t kOfTheProcess =
      3 + 2;  // the standard ones; the store, for the run and watchdog
  EXPECT_LT(descriptors_of(16, 64, true) + kOfTheProcess, 100);
  EXPECT_LT(descriptors_of(32, 32, true) + kOfTheProcess, 100);
}

// Above 64 ranks their addresses would be more than a store takes as one value.
TEST_F(HierarchicalStart, AMeshOfManyRanksMeetsToo) {
  auto store = c10::make_intrusive<CountingStore>();
  const auto words = on_ranks(66, [&](int64_t rank) {
    const BackendPointer gloo =
        levin::comm::make_gloo_backend(store, rank, 66, kStartTimeout, "127.0.0.1");
    Tensors data = {torch::full({1}, rank)};
    gloo->allreduce(data)->wait();
    gloo->barrier()->wait();
    return difference("all_reduce", data[0], torch::full({1}, 66 * 65 / 2));
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
