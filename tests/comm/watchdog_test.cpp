#include "levin/comm/watchdog/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "levin/base/error.h"
#include "levin/comm/watchdog/flight_recorder.h"
#include "tests/support/pretended_host.h"
#include "tests/support/world.h"

namespace {

using levin::ReduceOp;
using levin::comm::decode_operations;
using levin::comm::encode;
using levin::comm::explain;
using levin::comm::FlightRecord;
using levin::comm::FlightRecorder;
using levin::comm::ProcessGroup;
using levin::test::get;
using levin::test::pretend_host;
using levin::test::run_world;
using levin::test::wait_for_words;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kNotPermitted = "nobody here may mount what two hosts are made of";

TEST(FlightRecorder, KeepsTheLastOperationsInTheirOrder) {
  FlightRecorder recorder(3);
  const std::string group = "world";
  for (int64_t number = 1; number <= 5; ++number) {
    const auto ticket = recorder.begin(group, number, "all_reduce", at::kFloat, 10 * number);
    if (number != 4) recorder.end(ticket);
  }
  const auto all = recorder.operations();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].number, 3);
  EXPECT_EQ(all[1].text, "all_reduce of 40 x Float");
  EXPECT_LT(all[1].finished_s, 0);
  EXPECT_GE(all[2].finished_s, 0);
  EXPECT_GE(all[0].started_s, all[2].started_s);
}

TEST(FlightRecorder, AnEndThatComesTooLateMarksNothing) {
  FlightRecorder recorder(1);
  const std::string group = "world";
  const auto first = recorder.begin(group, 1, "barrier", at::kByte, 0);
  recorder.begin(group, 2, "barrier", at::kByte, 0);
  recorder.end(first);
  EXPECT_LT(recorder.operations().front().finished_s, 0);
}

TEST(FlightRecorder, ReadsWhatItWroteAndNothingElse) {
  const std::vector<levin::comm::Operation> written = {{"world", 7, "barrier", 1.5, -1}};
  const auto read = decode_operations(encode(written));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].group, "world");
  EXPECT_EQ(read[0].number, 7);
  EXPECT_EQ(read[0].text, "barrier");
  EXPECT_EQ(read[0].started_s, 1.5);
  for (const char* text : {"", "{", "[{}]", "[1]", "7"}) {
    EXPECT_TRUE(decode_operations(text).empty()) << text;
  }
  std::string text = encode(written);
  EXPECT_TRUE(decode_operations(text.replace(text.find(":7"), 2, ":7e80")).empty()) << text;
}

TEST(FlightRecorder, SaysWhoWaitsWhoIsLateAndWhoIsSilent) {
  const FlightRecord record = {
      {0, {{"world", 41, "broadcast", 9, 8}, {"world", 42, "all_reduce", 5, -1}}},
      {1, {{"world", 42, "all_reduce", 5, -1}, {"other", 50, "barrier", 2, 1}}},
      {2, {{"world", 41, "broadcast of 3 x Int", 20, 12.3}}},
      {4, {{"world", 42, "all_reduce", 5, 4}}},
      {5, {{"world", 41, "broadcast", 7.2, -1}}},
      {6, {}},
  };
  EXPECT_EQ(explain(record, {0, 1, 2, 3, 4, 5, 6}, "world", 42),
            "of number 42 of group world: ranks 0, 1 wait in it; rank 4 have finished it; rank 2 "
            "did not call it: its last was number 41, broadcast of 3 x Int, finished 12.3 s ago; "
            "rank 5 did not call it: its last was number 41, broadcast, under way for 7.2 s; rank "
            "6 has called none yet; rank 3 did not answer: stopped or ended");
}

/// Of two ranks, the second of which does something else than the collective.
std::vector<std::string> late_rank(
    const char* backend, const std::function<void(const std::filesystem::path& folder)>& instead) {
  return run_world(2, [&](int64_t rank, const std::filesystem::path& folder) -> std::string {
    ::setenv("LEVIN_FLIGHT_DIR", (folder / "flight").c_str(), 1);
    auto group = ProcessGroup::connect(
        levin::comm::read_environment(),
        {.backend = backend, .timeout = levin::test::patient(std::chrono::seconds(1))});
    group.barrier();
    if (rank == 1) {
      instead(folder);
      return "";
    }
    try {
      group.all_reduce(torch::ones({7}), ReduceOp::kSum);
    } catch (const levin::Error& error) {
      const auto written = nlohmann::json::parse(get(folder / "flight/rank_0.json"));
      return error.what() + (written["0"].empty() ? " and no record" : std::string());
    }
    return "no error";
  });
}

class WatchdogOver : public ::testing::TestWithParam<const char*> {};

TEST_P(WatchdogOver, ATimeoutNamesTheRankThatIsBusyElsewhere) {
  const auto words = late_rank(GetParam(), [](const auto& folder) { wait_for_words(folder, {0}); });
  EXPECT_THAT(words[0],
              AllOf(StartsWith("comm.timeout: "),
                    HasSubstr("rank 1 did not call it: its last was number 1, barrier, finished "),
                    HasSubstr("rank 0 wait in it"), HasSubstr("flight/rank_0.json")));
}

TEST_P(WatchdogOver, TheRecordOfAnotherRunStays) {
  const auto words = run_world(2, [&](int64_t rank, const std::filesystem::path& folder) {
    ::setenv("LEVIN_FLIGHT_DIR", (folder / "flight").c_str(), 1);
    if (rank == 0) {
      std::filesystem::create_directories(folder / "flight");
      std::filesystem::create_symlink(folder / "mine", folder / "flight/rank_0.json");
    }
    auto group = ProcessGroup::connect(levin::comm::read_environment(),
                                       {.backend = GetParam(), .timeout = std::chrono::seconds(1)});
    group.barrier();
    if (rank == 1) {
      wait_for_words(folder, {0});
      return std::string();
    }
    std::string said = "no error";
    try {
      group.all_reduce(torch::ones({7}), ReduceOp::kSum);
    } catch (const levin::Error& error) {
      said = error.what();
    }
    const auto written = nlohmann::json::parse(get(folder / "flight/rank_0.2.json"));
    return said + (std::filesystem::exists(folder / "mine") ? " and a link was followed" : "") +
           (written["0"].empty() ? " and no record" : "");
  });
  EXPECT_THAT(words[0], AllOf(HasSubstr("flight/rank_0.2.json"), Not(HasSubstr(" and no record")),
                              Not(HasSubstr(" and a link was followed"))));
}

TEST_P(WatchdogOver, ATimeoutNamesTheRankThatWasStopped) {
  const auto words = late_rank(GetParam(), [](const auto& folder) {
    const pid_t self = ::getpid();
    const pid_t waker = ::fork();
    if (waker == 0) {
      wait_for_words(folder, {0});
      ::kill(self, SIGCONT);
      ::_exit(0);
    }
    ::raise(SIGSTOP);
    ::waitpid(waker, nullptr, 0);
  });
  EXPECT_THAT(words[0], AllOf(StartsWith("comm.timeout: "),
                              HasSubstr("rank 1 did not answer: stopped or ended")));
}

INSTANTIATE_TEST_SUITE_P(Backends, WatchdogOver, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

/// Of four ranks, the first two on one host and the others on another.
bool pretend_two_hosts(int64_t rank, const std::filesystem::path& folder) {
  return pretend_host(folder / ("host_of." + std::to_string(rank)), rank < 2 ? "a" : "b");
}

/// Of four ranks, the last of which never comes back from its third operation; what the others say,
/// once the first has given up. Over hierarchical there are two on each of two hosts.
std::vector<std::string> hung_rank(const std::string& backend,
                                   std::chrono::milliseconds of_rank_2) {
  return run_world(4, [&](int64_t rank, const std::filesystem::path& folder) -> std::string {
    ::setenv("LEVIN_FLIGHT_DIR", (folder / "flight").c_str(), 1);
    if (backend == "hierarchical" && !pretend_two_hosts(rank, folder)) return kNotPermitted;
    auto group = ProcessGroup::connect(
        levin::comm::read_environment(),
        {.backend = backend,
         .timeout = rank == 2 ? of_rank_2 : levin::test::patient(std::chrono::seconds(2))});
    group.barrier();
    group.all_reduce(torch::ones({5}), ReduceOp::kSum);
    if (rank == 3) {
      wait_for_words(folder, {0, 1, 2});
      ::_exit(0);
    }
    try {
      group.all_reduce(torch::ones({7}), ReduceOp::kSum);
    } catch (const levin::Error& error) {
      return error.what();
    }
    return "no error";
  });
}

class HungRankOver : public ::testing::TestWithParam<const char*> {};

void expect_named(const std::vector<std::string>& words) {
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(
        words[rank],
        HasSubstr(
            "rank 3 did not call it: its last was number 2, all_reduce of 5 x Float, finished"));
  }
}

TEST_P(HungRankOver, IsNamedByAllWithItsLastOperation) {
  const auto words = hung_rank(GetParam(), levin::test::patient(std::chrono::seconds(2)));
  if (words[0] == kNotPermitted) GTEST_SKIP() << words[0];
  expect_named(words);
}

// When the others give up it has not waited for as long as it would.
TEST_P(HungRankOver, IsNamedByOneThatHasMorePatience) {
  const auto words = hung_rank(GetParam(), levin::test::patient(std::chrono::milliseconds(3500)));
  if (words[0] == kNotPermitted) GTEST_SKIP() << words[0];
  expect_named(words);
}

INSTANTIATE_TEST_SUITE_P(Backends, HungRankOver, ::testing::Values("shm", "gloo", "hierarchical"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PretendedHosts, AreTwoForTheRanksOfEach) {
  const auto words = run_world(4, [](int64_t rank, const std::filesystem::path& folder) {
    if (!pretend_two_hosts(rank, folder)) return std::string(kNotPermitted);
    auto group = levin::test::connect();
    at::Tensor sum = torch::full({20000}, double(rank));
    group.all_reduce(sum, ReduceOp::kSum);
    return group.backend() + " " + std::to_string(sum[19999].item<int64_t>());
  });
  if (words[0] == kNotPermitted) GTEST_SKIP() << words[0];
  EXPECT_THAT(words, Each("hierarchical 6"));
}

TEST(CheckMode, ComparesWhatRanksAreAboutToDo) {
  const auto words =
      run_world(2, [](int64_t rank, const std::filesystem::path& folder) -> std::string {
        ::setenv("LEVIN_FLIGHT_DIR", (folder / "flight").c_str(), 1);
        auto group = ProcessGroup::connect(
            levin::comm::read_environment(),
            {.backend = "gloo", .timeout = std::chrono::seconds(20), .check = true});
        const at::Tensor same = torch::full({3}, double(rank));
        group.all_reduce(same, ReduceOp::kSum);
        if (same[0].item<double>() != 1) return "wrong sum";
        group.all_reduce(torch::ones({3 + rank}), ReduceOp::kSum);
        return "";
      });
  for (const std::string& word : words) {
    EXPECT_THAT(word, AllOf(StartsWith("comm.mismatch: "), HasSubstr("3"), HasSubstr("4")));
  }
}

}  // namespace
