// A rank that is killed at any step of a save that all ranks make: the checkpoint from before is
// there, or the new one, whole, and the others are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>
#include <tuple>

#include "levin/checkpoint/async_saves.h"
#include "levin/files/atomic.h"
#include "tests/checkpoint/by_ranks.h"
#include "tests/support/error_of.h"
#include "tests/support/killed_at.h"

namespace {

namespace fs = std::filesystem;
using levin::load_checkpoint;
using levin::test::connect;
using levin::test::difference;
using levin::test::End;
using levin::test::error_of;
using levin::test::names_in;
using levin::test::sample;
using levin::test::save_together;
using levin::test::Scratch;
using ::testing::ElementsAre;

/// sample(2) behind steps that take a while.
void save_behind(const fs::path& folder, const levin::comm::ProcessGroup& group) {
  levin::AsyncSaves saves(group);
  saves.start(folder, sample(2), {});
  while (saves.is_under_way()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    saves.poll();
  }
}

/// One rank of two that save sample(2); its error into a file.
int save_as(int64_t rank, const fs::path& meeting, const fs::path& folder, bool is_behind) {
  at::set_num_threads(1);
  levin::test::set_rank(rank, 2, meeting);
  const std::string error = error_of([&] {
    is_behind ? save_behind(folder, connect()) : save_together(folder, sample(2), connect());
  });
  levin::test::put(meeting / ("said." + std::to_string(rank)), error);
  return 0;
}

/// Which rank, and whether the save is written behind training.
class KilledRank : public ::testing::TestWithParam<std::tuple<int64_t, bool>> {};

TEST_P(KilledRank, AtAnyStepOfASaveLeavesOneWholeCheckpoint) {
  const auto [victim, is_behind] = GetParam();
  const int64_t other = 1 - victim;
  int64_t kept = 0, replaced = 0;
  for (int64_t call = 1;; ++call) {
    SCOPED_TRACE(call);
    const Scratch scratch, meeting;
    levin::save_checkpoint(scratch / "c", sample(1));
    const auto save_of = [&](int64_t rank) {
      return [&, rank, is_behind = is_behind] {
        return save_as(rank, meeting.path(), scratch / "c", is_behind);
      };
    };
    const pid_t peer = levin::test::start_child(save_of(other));
    const End end = levin::test::killed_at(call, save_of(victim), levin::test::changes_the_disk);
    if (end == End::kCannotTrace) {
      ::kill(peer, SIGKILL);
      levin::test::wait_for(peer);
      GTEST_SKIP() << "ptrace is not permitted here";
    }
    ASSERT_NE(end, End::kFailed);
    ASSERT_EQ(levin::test::wait_for(peer), 0);
    const auto loaded = load_checkpoint(scratch / "c");
    const bool is_old = difference(sample(1), loaded).empty();
    EXPECT_TRUE(is_old || difference(sample(2), loaded).empty());
    const std::string said = levin::test::get(meeting / ("said." + std::to_string(other)));
    if (end == End::kEnded) {
      EXPECT_EQ(said, "no error");
      EXPECT_FALSE(is_old);
      break;
    }
    // Where the new one is there and the killed rank could not say so, the other is told of that.
    EXPECT_TRUE(said.starts_with("comm.") || !is_old) << said;
    (is_old ? kept : replaced) += 1;
    levin::files::remove_stale_staging(scratch.path());
    EXPECT_THAT(names_in(scratch.path()), ElementsAre("c"));
    levin::save_checkpoint(scratch / "c", sample(3));
    EXPECT_EQ(difference(sample(3), load_checkpoint(scratch / "c")), "");
  }
  EXPECT_GT(kept, victim == 0 ? 15 : 3);
  if (victim == 0) EXPECT_GT(replaced, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRank,
                         ::testing::Combine(::testing::Values(0, 1), ::testing::Bool()));

}  // namespace
