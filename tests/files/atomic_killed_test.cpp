#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "levin/files/atomic.h"
#include "tests/files/saving.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::files {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::get;
using test::names_in;
using test::put;
using test::Scratch;
using ::testing::ElementsAre;
using testing::forbid_exchange;
using ::testing::HasSubstr;
using testing::save;

TEST(StagedDirectory, KilledWhileWritingLeavesTheOldOneAndALeftover) {
  const Scratch scratch;
  save(scratch / "a", "1");
  const pid_t child = test::start_child([&] {
    const StagedDirectory staged(scratch / "a");
    put(staged.path() / "a", "2");
    for (;;) ::pause();
    return 0;
  });
  while (names_in(scratch.path()).size() < 2) std::this_thread::yield();
  ::kill(child, SIGKILL);
  EXPECT_EQ(test::wait_for(child), -SIGKILL);
  EXPECT_EQ(get(scratch / "a/a"), "1");
  EXPECT_EQ(remove_stale_staging(scratch.path()), 1);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

/// Kills a process that saves over and over at many moments; whether exchange is permitted to it.
class KilledWhileSaving : public ::testing::TestWithParam<bool> {};

TEST_P(KilledWhileSaving, LeavesOneWholeFolder) {
  const Scratch scratch;
  save(scratch / "a", "0");
  for (int round = 0; round < 25; ++round) {
    const pid_t child = test::start_child([&] {
      if (!GetParam() && !forbid_exchange()) return test::kSkipped;
      for (int64_t count = 0;; ++count) save(scratch / "a", std::to_string(count));
    });
    std::this_thread::sleep_for(std::chrono::microseconds(20'000 + round * 777));
    ::kill(child, SIGKILL);
    const int code = test::wait_for(child);
    if (code == test::kSkipped) GTEST_SKIP() << "seccomp is not permitted here";
    ASSERT_EQ(code, -SIGKILL);
    remove_stale_staging(scratch.path());
    ASSERT_THAT(names_in(scratch.path()), ElementsAre("a"));
    ASSERT_THAT(names_in(scratch / "a"), ElementsAre("a", "b"));
    const std::string text = get(scratch / "a/a");
    ASSERT_FALSE(text.empty());
    ASSERT_EQ(text, get(scratch / "a/b"));
  }
}

INSTANTIATE_TEST_SUITE_P(StagedDirectory, KilledWhileSaving, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "ByExchange" : "InTwoSteps"; });

/// The name under which a process that died staged something for "a".
fs::path dead_name(const Scratch& scratch) {
  test::run_child([&] {
    new StagedDirectory(scratch / "a");
    return 0;
  });
  const auto names = names_in(scratch.path());
  EXPECT_EQ(names.size(), 1u);
  return scratch / names.at(0);
}

TEST(RemoveStaleStaging, PutsBackAFolderWhoseReplacementWasBegun) {
  const Scratch scratch;
  const fs::path staged = dead_name(scratch);
  put(staged / "model", "old");
  fs::path begun = staged;
  begun.replace_filename(".old" + staged.filename().string().substr(4));
  fs::rename(staged, begun);
  EXPECT_EQ(remove_stale_staging(scratch.path()), 1);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
  EXPECT_EQ(get(scratch / "a/model"), "old");
}

TEST(RemoveStaleStaging, RemovesAFolderWhoseReplacementWasDone) {
  const Scratch scratch;
  const fs::path staged = dead_name(scratch);
  fs::path begun = staged;
  begun.replace_filename(".old" + staged.filename().string().substr(4));
  fs::rename(staged, begun);
  save(scratch / "a", "new");
  EXPECT_EQ(remove_stale_staging(scratch.path()), 1);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
  EXPECT_EQ(get(scratch / "a/a"), "new");
}

TEST(RemoveStaleStaging, KeepsWhatTheLivingStageAndWhatIsNotStaging) {
  const Scratch scratch;
  const StagedDirectory staged(scratch / "a");
  const std::string own = staged.path().filename().string();
  const std::vector<std::string> kept = {
      ".tmp-",
      ".tmp-a",
      ".tmp-a@",
      ".tmp-a@host",
      ".tmp-a@-1-1-1",
      ".tmp-a@host-x-1-1",
      "tmp" + own,
      ".tmp-a@elsewhere-99999999-1-1",
      "a@host-99999999-1-1",
      own + "x",
  };
  for (const std::string& name : kept) fs::create_directory(scratch / name);
  EXPECT_EQ(remove_stale_staging(scratch.path()), 0);
  EXPECT_EQ(names_in(scratch.path()).size(), kept.size() + 1);
}

TEST(RemoveStaleStaging, TellsARestartedProcessOfTheSamePidFromItself) {
  const Scratch scratch;
  // In a container that is restarted the pid is the same, the start time is not.
  std::string other;
  {
    const StagedDirectory staged(scratch / "a");
    other = staged.path().filename().string();
  }
  const size_t end = other.rfind('-');
  const size_t start = other.rfind('-', end - 1);
  fs::create_directory(scratch / (other.substr(0, start) + "-1" + other.substr(end)));
  EXPECT_EQ(remove_stale_staging(scratch.path()), 1);
}

TEST(RemoveStaleStaging, HasNothingToDoInAFolderThatIsNotThere) {
  const Scratch scratch;
  EXPECT_EQ(remove_stale_staging(scratch / "none"), 0);
}

TEST(RemoveStaleStaging, NamesWhatIsNoFolder) {
  const Scratch scratch;
  put(scratch / "file", "");
  EXPECT_THAT(error_of([&] { remove_stale_staging(scratch / "file"); }),
              HasSubstr("files.write: cannot list the folder"));
}

}  // namespace
}  // namespace levin::files
