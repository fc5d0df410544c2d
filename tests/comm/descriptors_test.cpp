// Files and sockets that a process may open: raised as far as is allowed, and named where that is
// too few.
#include "levin/comm/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "levin/base/error.h"
#include "levin/comm/shm/group.h"
#include "tests/comm/ranks.h"
#include "tests/support/child_process.h"

namespace {

using namespace levin::test;  // NOLINT
using levin::comm::allow_descriptors;
using levin::comm::Reduction;
using levin::comm::shortage_of_descriptors;
using levin::comm::shm::Group;
using ::testing::HasSubstr;

/// Of this process, for good.
void limit_to(int64_t soft, int64_t hard) {
  const rlimit limit = {static_cast<rlim_t>(soft), static_cast<rlim_t>(hard)};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("setrlimit");
}

int64_t soft_limit() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(limit.rlim_cur);
}

TEST(Descriptors, AreRaisedToWhatIsNeededAndNeverLowered) {
  EXPECT_EQ(run_child([] {
              limit_to(100, 4000);
              if (allow_descriptors(1000) != 1512 || soft_limit() != 1512) return 1;
              if (allow_descriptors(10) != 1512 || soft_limit() != 1512) return 2;
              return shortage_of_descriptors(1000).empty() ? 0 : 3;
            }),
            0);
}

TEST(Descriptors, AreNamedWhereTheHardLimitIsTooLow) {
  const Scratch scratch;
  EXPECT_EQ(run_child([&] {
              limit_to(100, 300);
              put(scratch / "words", shortage_of_descriptors(1000));
              return soft_limit() == 300 ? 0 : 1;
            }),
            0);
  EXPECT_EQ(get(scratch / "words"),
            " (this process may open 300 files but needs 1512; raise the limit with ulimit -n)");
}

constexpr int64_t kRanks = 4;

/// Rank 0 of four may open few more files than it has open: its exit code, its error in a file.
int meet_with_few(const Scratch& scratch, int64_t hard) {
  const auto meet = [&](int64_t rank) {
    Group group(rank, kRanks, board_in(scratch.path()), {.timeout = std::chrono::seconds(20)});
    std::vector<float> data = {1};
    group.all_reduce({reinterpret_cast<std::byte*>(data.data()), at::kFloat, 1}, Reduction::kSum);
    return data[0] == kRanks ? 0 : 1;
  };
  std::vector<pid_t> others;
  for (int64_t rank = 1; rank < kRanks; ++rank) {
    others.push_back(start_child([&meet, rank] { return meet(rank); }));
  }
  const int code = run_child([&] {
    const int next = ::dup(STDIN_FILENO);
    ::close(next);
    limit_to(next + 4, hard == 0 ? next + 4 : hard);
    try {
      return meet(0);
    } catch (const levin::Error& error) {
      put(scratch / "error", error.what());
      return 2;
    }
  });
  for (const pid_t pid : others) {
    EXPECT_EQ(wait_for(pid) == 0, code == 0);  // nobody waits for one that has failed
  }
  return code;
}

TEST(Descriptors, RanksOfAHostMeetWhereTheSoftLimitIsTooLow) {
  const Scratch scratch;
  EXPECT_EQ(meet_with_few(scratch, 4000), 0);
}

TEST(Descriptors, RanksOfAHostSayThatTheHardLimitIsTooLow) {
  const Scratch scratch;
  ASSERT_EQ(meet_with_few(scratch, 0), 2);
  EXPECT_THAT(get(scratch / "error"), HasSubstr("raise the limit with ulimit -n"));
}

}  // namespace
