// The table of backend_table.h for the backends that need no launcher, and what is the shm
// backend's and gloo's own. The mpi backend's part is in mpi_test.cpp.
#include "levin/comm/shm/backend.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "levin/comm/file_store/file_store.h"
#include "levin/comm/gloo/gloo.h"
#include "levin/comm/hierarchical/backend.h"
#include "tests/comm/backend_table.h"
#include "tests/comm/ranks.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::test::BackendCollective;
using levin::test::check_collective;
using levin::test::difference;
using levin::test::kCollectives;
using levin::test::kMessages;
using levin::test::run_ranks;
using levin::test::Tensors;
using levin::test::wait_for_marks;
using levin::test::wait_for_words;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

constexpr auto kTimeout = std::chrono::seconds(60);

BackendPointer make_backend(const std::string& name, int64_t rank, int64_t size,
                            const std::filesystem::path& folder) {
  at::set_num_threads(1);
  const auto store = c10::make_intrusive<levin::comm::FileStore>(folder / "store", size);
  if (name == "shm") return levin::comm::make_shm_backend(store, rank, size, kTimeout);
  if (name.starts_with("hosts")) {
    // hostsABA: rank 0 and 2 on one host; ranks beyond the letters share the last.
    std::vector<std::string> hosts;
    for (int64_t i = 0; i < size; ++i) {
      hosts.emplace_back(1, name[static_cast<size_t>(std::min(5 + i, std::ssize(name) - 1))]);
    }
    return levin::comm::make_hierarchical_backend(store, rank, levin::comm::HostLayout::of(hosts),
                                                  kTimeout, {.own_address = "127.0.0.1"});
  }
  return levin::comm::make_gloo_backend(store, rank, size, kTimeout, "127.0.0.1");
}

class BackendTable : public testing::TestWithParam<std::tuple<std::string, BackendCollective>> {};

TEST_P(BackendTable, DoesWhatC10dSays) {
  const auto& [name, collective] = GetParam();
  for (const int64_t size : {1, 2, 3}) {
    const auto words = run_ranks(size, [&](int64_t rank, const auto& folder) {
      const BackendPointer backend = make_backend(name, rank, size, folder);
      return check_collective(collective, *backend);
    });
    EXPECT_THAT(words, Each("")) << size << " ranks";
  }
}

class HierarchicalTable
    : public testing::TestWithParam<std::tuple<std::string, BackendCollective>> {};

TEST_P(HierarchicalTable, DoesWhatC10dSays) {
  const auto& [name, collective] = GetParam();
  const auto words = run_ranks(4, [&](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend(name, rank, 4, folder);
    return check_collective(collective, *backend);
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Comm, BackendTable,
                         testing::Combine(testing::Values("shm", "gloo"),
                                          testing::ValuesIn(kCollectives)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::get<1>(info.param).name;
                         });

// As many ranks on each host, in order and mixed, another number on each, and all on one.
INSTANTIATE_TEST_SUITE_P(
    Hierarchical, HierarchicalTable,
    testing::Combine(testing::Values("hostsAABB", "hostsABAB", "hostsAABA", "hostsAAAA"),
                     testing::ValuesIn(kCollectives)),
    [](const auto& info) { return std::get<0>(info.param) + std::get<1>(info.param).name; });

INSTANTIATE_TEST_SUITE_P(HierarchicalMessages, HierarchicalTable,
                         testing::Combine(testing::Values("hostsAABB", "hostsABAA"),
                                          testing::ValuesIn(kMessages)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::get<1>(info.param).name;
                         });

INSTANTIATE_TEST_SUITE_P(Messages, BackendTable,
                         testing::Combine(testing::Values("shm", "gloo"),
                                          testing::ValuesIn(kMessages)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::get<1>(info.param).name;
                         });

TEST(ShmBackend, SumsHalfTypesInFloat) {
  const auto words = run_ranks(3, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 3, folder);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const auto part = [&](int64_t of) {
        torch::manual_seed(of);
        return torch::randn({3000}).to(type);
      };
      Tensors data = {part(rank)};
      backend->allreduce(data, {.reduceOp = c10d::ReduceOp::AVG})->wait();
      const auto wanted = (part(0).to(at::kFloat) + part(1).to(at::kFloat) + part(2).to(at::kFloat))
                              .mul(static_cast<float>(1.0 / 3))
                              .to(type);
      const auto wrong = difference("mean", data[0], wanted);
      if (!wrong.empty()) return wrong;
    }
    return std::string();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmBackend, ReducesItsOwnTensorsWhereTheyLie) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 2, folder);
    Tensor bucket = backend->allocateTensor(100000, at::kDouble);
    for (int step = 0; step < 3; ++step) {
      bucket.fill_(rank + step);
      Tensors data = {bucket.slice(0, 1000)};
      backend->allreduce(data)->wait();
      const auto wrong =
          difference("bucket", data[0], torch::full({99000}, 1.0 + 2 * step, at::kDouble));
      if (!wrong.empty()) return wrong;
      backend->barrier()->wait();
    }
    return std::string();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmBackend, BroadcastsIntoParameters) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 2, folder);
    Tensors parameter = {torch::full({4, 2}, rank, at::kFloat).t().requires_grad_()};
    backend->broadcast(parameter, {.rootRank = 1})->wait();
    return difference("parameter", parameter[0], torch::ones({2, 4}));
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmBackend, ReceivesIntoEverySecondElement) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 2, folder);
    Tensors whole = {torch::arange(100000)}, half = {torch::zeros({200000}, at::kLong)};
    if (rank == 0) return backend->send(whole, 1, 0)->wait() ? std::string() : "not sent";
    Tensors every_second = {half[0].slice(0, 0, std::nullopt, 2)};
    backend->recv(every_second, 0, 0)->wait();
    return difference("recv", half[0].view({-1, 2}).select(1, 0), whole[0]);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmBackend, GivesAnErrorToWhoWaits) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 2, folder);
    Tensors data = {torch::ones({rank + 1})};
    const auto work = backend->allreduce(data);
    std::string said;
    try {
      work->wait();
    } catch (const std::exception& error) {
      said = error.what();
    }
    try {
      backend->barrier({.asyncOp = false});
    } catch (const std::exception& error) {
      said += std::string(" / ") + error.what();
    }
    return said;
  });
  EXPECT_THAT(
      words, Each(AllOf(StartsWith("comm.mismatch: "),
                        HasSubstr(" / comm.closed: the group has already failed: comm.mismatch"))));
}

TEST(ShmBackend, LivesAsLongAsItsWork) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    BackendPointer backend = make_backend("shm", rank, 2, folder);
    Tensors data = {torch::ones({1000})};
    const auto work = backend->allreduce(data);
    backend = nullptr;
    work->wait();
    return difference("all_reduce", data[0], torch::full({1000}, 2.0F));
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmBackend, RefusesWhatItCannotDo) {
  const auto words = run_ranks(1, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 1, folder);
    std::string said;
    const auto note = [&](const auto& call) {
      try {
        call();
      } catch (const std::exception& error) {
        said += std::string(error.what()) + "\n";
      }
    };
    Tensors meta = {torch::ones({3}, at::kMeta)}, fine = {torch::ones({3})};
    note([&] { backend->allreduce(meta); });
    Tensor four = torch::ones({4});
    note([&] { backend->_allgather_base(four, fine[0]); });
    std::vector<int64_t> rows = {2}, none;
    note([&] { backend->alltoall_base(four, four, rows, none); });
    note([&] { backend->send(fine, 0, 0); });
    note([&] { backend->recvAnysource(fine, 0); });
    note([&] { backend->allreduce(fine, {.reduceOp = c10d::ReduceOp::UNUSED}); });
    return said;
  });
  EXPECT_THAT(
      words[0],
      AllOf(
          HasSubstr("comm.tensor: got a Strided tensor on meta"),
          HasSubstr("all_gather: got a full tensor of 4 elements of Float and parts of 3 elements "
                    "of Float"),
          HasSubstr("got 4 rows and 1 split sizes that sum to 2,"),
          HasSubstr("comm.rank: rank 0 of 1 cannot send to or receive from"),
          HasSubstr("comm.unsupported: the shm backend cannot receive from an arbitrary rank"),
          HasSubstr("comm.reduce: got a reduction that this backend does not have")));
}

TEST(GlooBackend, ItsThreadInterruptsNobody) {
  const auto words = run_ranks(2, [](int64_t rank, const std::filesystem::path& folder) {
    at::set_num_threads(1);
    const auto store = c10::make_intrusive<levin::comm::FileStore>(folder / "store", 2);
    const auto backend =
        levin::comm::make_gloo_backend(store, rank, 2, std::chrono::seconds(20), "127.0.0.1");
    std::string policies;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(entry.path() / "comm"), name);
      if (!name.starts_with("gloo_tcp_loop")) continue;
      policies += std::to_string(::sched_getscheduler(std::stoi(entry.path().filename())));
    }
    Tensors data = {torch::ones({5})};
    backend->allreduce(data)->wait();
    return fmt::format("{}, own {}", policies, ::sched_getscheduler(0));
  });
  EXPECT_THAT(words, Each(fmt::format("{}, own {}", SCHED_BATCH, SCHED_OTHER)));
}

// One of two ranks is late, both are stopped meanwhile for longer than the timeout, and go on at
// slightly different times: nobody's fault.
TEST(GlooBackend, RanksThatWereStoppedTogetherHaveWaitedForNobody) {
  const auto timeout = std::min<std::chrono::milliseconds>(
      levin::test::patient(std::chrono::seconds(2)), std::chrono::seconds(10));
  const auto words = run_ranks(3, [&](int64_t rank, const std::filesystem::path& folder) {
    const auto mark = [&](int64_t of) { return folder / ("pid." + std::to_string(of)); };
    if (rank == 2) {  // the one that stops the others
      pid_t pids[2] = {};
      for (const int64_t of : {0, 1}) {
        while (!(std::ifstream(mark(of)) >> pids[of])) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      for (const pid_t pid : pids) ::kill(pid, SIGSTOP);
      std::this_thread::sleep_for(1.75 * timeout);
      for (const pid_t pid : pids) {
        ::kill(pid, SIGCONT);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
      return std::string();
    }
    at::set_num_threads(1);
    const auto store = c10::make_intrusive<levin::comm::FileStore>(folder / "store", 2);
    const auto backend = levin::comm::make_gloo_backend(store, rank, 2, timeout, "127.0.0.1");
    std::ofstream(mark(rank).string() + ".new") << ::getpid();
    std::filesystem::rename(mark(rank).string() + ".new", mark(rank));
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    Tensors data = {torch::ones({5})};
    backend->allreduce(data)->wait();
    return difference("all_reduce", data[0], torch::full({5}, 2.0F));
  });
  EXPECT_THAT(words, Each(""));
}

// Rank 0 waits for rank 2, which is late, and rank 1, with more patience, for rank 0.
TEST(GlooBackend, GivesUpAPeerAfterItsTimeoutAndHangsUpOnTheOthers) {
  const auto words = run_ranks(3, [](int64_t rank, const std::filesystem::path& folder) {
    at::set_num_threads(1);
    const auto store = c10::make_intrusive<levin::comm::FileStore>(folder / "store", 3);
    const auto timeout = rank == 0 ? levin::test::patient(std::chrono::seconds(1))
                                   : std::chrono::milliseconds(std::chrono::hours(10));
    const auto backend = levin::comm::make_gloo_backend(store, rank, 3, timeout, "127.0.0.1");
    std::string said = "nothing";
    try {
      Tensors data = {torch::ones({5})};
      if (rank != 2) backend->recv(data, rank == 0 ? 2 : 0, 0)->wait();
    } catch (const std::exception& error) {
      said = error.what();
    }
    // No end of a process tells anybody.
    std::ofstream(folder / ("heard." + std::to_string(rank)));
    wait_for_marks(folder, {"heard.0", "heard.1"});
    return said;
  });
  EXPECT_THAT(words[0], ::testing::ContainsRegex("^comm.timeout: waited [0-9.]+ s in "));
  EXPECT_THAT(words[1], AllOf(StartsWith("comm."), ::testing::Not(StartsWith("comm.timeout"))));
}

TEST(GlooBackend, SaysWhenTheOthersDoNotCome) {
  const auto words = run_ranks(1, [](int64_t, const auto& folder) {
    const auto store = c10::make_intrusive<levin::comm::FileStore>(folder / "store", 2);
    levin::comm::make_gloo_backend(store, 0, 2, std::chrono::milliseconds(300), "127.0.0.1");
    return std::string("no error");
  });
  EXPECT_THAT(words, Each(StartsWith("comm.timeout: waited 0.3 s to connect ranks 0,1 over gloo, "
                                     "but rank 1 did not connect; ")));
}

TEST(GlooBackend, SaysWhenThereIsNoWayToOneThatCame) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    const auto store = c10::make_intrusive<levin::comm::FileStore>(folder / "store", 2);
    // An address that is not this machine's cannot be listened at.
    const std::string host = rank == 0 ? "127.0.0.1" : "192.0.2.1";
    levin::comm::make_gloo_backend(store, rank, 2, std::chrono::milliseconds(300), host);
    return std::string("no error");
  });
  EXPECT_THAT(words[0], StartsWith("comm.timeout: waited 0.3 s to connect ranks 0,1"));
  EXPECT_THAT(words[1],
              StartsWith("comm.gloo: rank 1 of 2 cannot connect to the other ranks of 0,1"));
}

/// Each rank says what went wrong in a gather of parts of which rank 3 has another idea.
std::vector<std::string> gather_of_two_minds(const std::string& name) {
  return run_ranks(4, [&](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend(name, rank, 4, folder);
    const std::vector<int64_t> counts =
        rank == 3 ? std::vector<int64_t>{2, 1, 0, 4} : std::vector<int64_t>{1, 2, 0, 4};
    std::vector<Tensors> parts = {torch::zeros({7}).split_with_sizes(counts)};
    Tensors mine = {torch::zeros({counts[static_cast<size_t>(rank)]})};
    return levin::test::error_of([&] { backend->allgather(parts, mine)->wait(); });
  });
}

auto names_both() {
  return AllOf(StartsWith("comm.mismatch: "), HasSubstr("parts of 1,2,0,4"),
               HasSubstr("parts of 2,1,0,4"));
}

TEST(UnevenParts, ThatDifferAreNamedByBothSides) {
  for (const char* name : {"shm", "gloo"}) {
    EXPECT_THAT(gather_of_two_minds(name), Each(names_both())) << name;
  }
}

TEST(UnevenParts, ThatDifferAreNamedOnTheirHostAndEndTheOthers) {
  for (const char* name : {"hostsAABB", "hostsBAAA"}) {
    const auto words = gather_of_two_minds(name);
    EXPECT_THAT(words[3], names_both()) << name;
    EXPECT_THAT(words[2], names_both()) << name;
    EXPECT_THAT(words[0], StartsWith("comm.peer: ")) << name;
  }
}

TEST(UnevenParts, OfAnotherNumberOfRanksOrElementsAreRefused) {
  const auto words = run_ranks(1, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 1, folder);
    const auto gather = [&](const Tensors& parts, const Tensor& part) {
      std::vector<Tensors> outputs = {parts};
      Tensors inputs = {part};
      return levin::test::error_of([&] { backend->allgather(outputs, inputs)->wait(); }) + "\n";
    };
    return gather({torch::ones({2}), torch::ones({3})}, torch::ones({2})) +
           gather({torch::ones({2})}, torch::ones({3})) + gather({}, torch::ones({3})) +
           gather({torch::ones({2}), torch::ones({2}, at::kInt)}, torch::ones({2}));
  });
  EXPECT_THAT(
      words[0],
      AllOf(HasSubstr("all_gather: got parts of 2,3 x Float for 1 ranks and a part of 2 x Float"),
            HasSubstr("all_gather: got parts of 2 x Float for 1 ranks and a part of 3 x Float"),
            HasSubstr("all_gather: got no parts, wanted one part per rank"),
            HasSubstr("all_gather: got parts of dtype Float and Int, wanted one dtype")));
}

/// On hosts that are named, with a short time for each operation.
BackendPointer on_hosts(const std::vector<std::string>& hosts, int64_t rank,
                        const std::filesystem::path& folder) {
  at::set_num_threads(1);
  const auto store =
      c10::make_intrusive<levin::comm::FileStore>(folder / "store", std::ssize(hosts));
  return levin::comm::make_hierarchical_backend(
      store, rank, levin::comm::HostLayout::of(hosts),
      levin::test::patient(std::chrono::milliseconds(1500)), {.own_address = "127.0.0.1"});
}

TEST(Hierarchical, ARankThatTakesNoMessageIsNamed) {
  const auto words = run_ranks(3, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = on_hosts({"A", "B", "B"}, rank, folder);
    Tensors data = {torch::ones({4})};
    backend->barrier()->wait();
    const std::string said =
        rank == 1 ? "" : levin::test::error_of([&] { backend->send(data, 1, 0)->wait(); });
    if (rank == 1) wait_for_words(folder, {0, 2});
    return said;
  });
  EXPECT_THAT(words[0], ::testing::ContainsRegex("^comm.timeout: waited [0-9.]+ s to connect ranks "
                                                 "0,1 over gloo, but rank 1 did not connect; "));
  EXPECT_EQ(words[2], "no error");  // on its host a message waits for nobody
}

TEST(Hierarchical, AMessageThatNobodySendsIsNotWaitedForWhenTheGroupHasFailed) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("hostsAB", rank, 2, folder);
    Tensors message = {torch::ones({4})}, data = {torch::ones({rank + 1})};
    c10::intrusive_ptr<c10d::Work> work;
    if (rank == 0) work = backend->recv(message, 1, 0);
    const std::string failed = levin::test::error_id([&] { backend->allreduce(data)->wait(); });
    if (rank == 1) return failed;
    return failed + ", " + levin::test::error_id([&] { work->wait(); });
  });
  EXPECT_THAT(words, ::testing::ElementsAre("comm.mismatch, comm.closed", "comm.mismatch"));
}

// Not by a timeout.
TEST(Hierarchical, ARankThatIsGoneBeforeItsGroupConnectsIsHeardOf) {
  const auto words = run_ranks(4, [](int64_t rank, const auto& folder) -> std::string {
    BackendPointer backend = make_backend("hostsAABB", rank, 4, folder);
    backend->barrier()->wait();
    if (rank == 3) ::_exit(0);
    Tensors large = {torch::ones({100000})};
    return levin::test::error_of([&] { backend->allreduce(large)->wait(); });
  });
  for (const int64_t rank : {0, 1, 2}) EXPECT_THAT(words[rank], StartsWith("comm.peer: "));
}

}  // namespace
