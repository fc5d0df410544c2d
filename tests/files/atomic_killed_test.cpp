#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
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
    const StagedDirectory staged(scratch / "a", [](const fs::path&) { return true; });
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

/// Stages "a" and waits for a byte, as the first process of a pid namespace of its own, where it is
/// another number than here.
int stage_in_a_container(const fs::path& folder, int ready, int go_on) {
  if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
    return test::kSkipped;
  }
  const pid_t first = test::start_child([&] {
    const StagedDirectory staged(folder / "a");
    put(staged.path() / "model", "half");
    char byte = ::getpid() == 1 ? 'x' : '?';
    if (::write(ready, &byte, 1) != 1 || ::read(go_on, &byte, 1) < 0) return 1;
    ::_exit(2);
  });
  ::close(ready);
  return test::wait_for(first) == 2 ? 0 : 3;
}

TEST(RemoveStaleStaging, KeepsWhatALivingProcessOfAnotherContainerStages) {
  const Scratch scratch;
  int ready[2], go_on[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go_on), 0);
  const pid_t outer = test::start_child([&] {
    ::close(ready[0]);
    ::close(go_on[1]);
    return stage_in_a_container(scratch.path(), ready[1], go_on[0]);
  });
  ::close(ready[1]);
  ::close(go_on[0]);
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1) {
    EXPECT_EQ(test::wait_for(outer), test::kSkipped);
    GTEST_SKIP() << "pid namespaces are not permitted here";
  }
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(remove_stale_staging(scratch.path()), 0);
  ASSERT_EQ(names_in(scratch.path()).size(), 1u);
  EXPECT_EQ(get(scratch / names_in(scratch.path())[0] / "model"), "half");
  ::close(go_on[1]);
  EXPECT_EQ(test::wait_for(outer), 0);
  EXPECT_EQ(remove_stale_staging(scratch.path()), 1);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre());
  ::close(ready[0]);
}

/// The same without a namespace: a name that counts in another one, and its lock.
TEST(RemoveStaleStaging, GoesByTheLockWhereThePidMeansNothing) {
  const Scratch scratch;
  const fs::path staged = dead_name(scratch);
  std::string name = staged.filename().string();
  const size_t start = name.rfind('-', name.rfind('-') - 1);
  const size_t space = name.rfind('-', name.rfind('-', start - 1) - 1);
  name.replace(space, name.rfind('-', start - 1) - space, "-1");
  fs::rename(staged, scratch / name);
  const int held = ::open((scratch / name).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(remove_stale_staging(scratch.path()), 0);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre(name));
  ::close(held);
  EXPECT_EQ(remove_stale_staging(scratch.path()), 1);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre());
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
