#include "levin/files/atomic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "levin/files/file_writer.h"
#include "tests/files/child_process.h"
#include "tests/files/scratch.h"
#include "tests/files/small_disk.h"

namespace levin::files {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::error_of;
using testing::get;
using testing::put;
using testing::Scratch;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Two files that must agree.
void save(const fs::path& final_path, const std::string& text) {
  StagedDirectory staged(final_path);
  for (const char* name : {"a", "b"}) {
    FileWriter file(staged.path() / name);
    file.write(text);
    file.close();
  }
  staged.commit();
}

/// From now on this process cannot exchange two folders, as on some network file systems.
bool forbid_exchange() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(StagedDirectory, AppearsOnlyWhenCommitted) {
  const Scratch scratch;
  StagedDirectory staged(scratch / "epoch=1");
  put(staged.path() / "model", "weights");
  EXPECT_EQ(staged.path().parent_path(), scratch.path());
  EXPECT_THAT(staged.path().filename().string(), StartsWith(".tmp-epoch=1@"));
  EXPECT_FALSE(fs::exists(scratch / "epoch=1"));
  staged.commit();
  EXPECT_EQ(get(scratch / "epoch=1/model"), "weights");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("epoch=1"));
}

TEST(StagedDirectory, IsReadableByWhomTheUmaskSays) {
  const Scratch scratch;
  StagedDirectory staged(scratch / "a");
  fs::create_directory(scratch / "plain");
  EXPECT_EQ(fs::status(staged.path()).permissions(), fs::status(scratch / "plain").permissions());
}

TEST(StagedDirectory, MakesTheFoldersAboveAndTakesATrailingSlash) {
  const Scratch scratch;
  save(scratch / "run/checkpoints/last/", "1");
  EXPECT_EQ(get(scratch / "run/checkpoints/last/a"), "1");
}

TEST(StagedDirectory, LeavesNothingWhenNotCommitted) {
  const Scratch scratch;
  {
    const StagedDirectory staged(scratch / "a");
    fs::create_directory(staged.path() / "inner");
    put(staged.path() / "inner" / "model", "weights");
  }
  EXPECT_THAT(names_in(scratch.path()), ElementsAre());
}

TEST(StagedDirectory, ReplacesWhatStoodThere) {
  const Scratch scratch;
  save(scratch / "a", "1");
  put(scratch / "a/more", "old");
  save(scratch / "a", "2");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
  EXPECT_THAT(names_in(scratch / "a"), ElementsAre("a", "b"));
  EXPECT_EQ(get(scratch / "a/a"), "2");
}

TEST(StagedDirectory, ReplacesWhereFoldersCannotBeExchanged) {
  const Scratch scratch;
  const int code = testing::run_child([&] {
    if (!forbid_exchange()) return testing::kSkipped;
    save(scratch / "a", "1");
    save(scratch / "a", "2");
    return 0;
  });
  if (code == testing::kSkipped) GTEST_SKIP() << "seccomp is not permitted here";
  EXPECT_EQ(code, 0);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
  EXPECT_EQ(get(scratch / "a/a"), "2");
}

TEST(StagedDirectory, RefusesToReplaceAFileAndToCommitTwice) {
  const Scratch scratch;
  put(scratch / "file", "");
  EXPECT_THAT(error_of([&] { StagedDirectory staged(scratch / "file"); }),
              HasSubstr("files.write: cannot replace"));
  StagedDirectory staged(scratch / "a");
  staged.commit();
  EXPECT_THAT(error_of([&] { staged.commit(); }), HasSubstr("was committed before"));
}

TEST(StagedDirectory, NamesTheFolderItCannotMake) {
  const Scratch scratch;
  put(scratch / "file", "");
  EXPECT_THAT(error_of([&] { StagedDirectory staged(scratch / "file" / "a"); }),
              HasSubstr("files.write: cannot make the folder " + (scratch / "file").string()));
}

TEST(StagedDirectory, LeavesTheOldOneWholeOnAFullDisk) {
  const Scratch scratch;
  const int code = testing::run_child([&] {
    if (!testing::mount_small_disk(scratch.path().string(), 1 << 16)) return testing::kSkipped;
    save(scratch / "a", "1");
    const std::string message = error_of([&] { save(scratch / "a", std::string(1 << 17, 'x')); });
    if (message.find("no space left on device") == message.npos) return 1;
    return get(scratch / "a/b") == "1" && names_in(scratch.path()).size() == 1 ? 0 : 2;
  });
  if (code == testing::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

TEST(StagedDirectory, LeavesTheOldOneWholeWhenFilesMayNotGrow) {
  const Scratch scratch;
  save(scratch / "a", "1");
  EXPECT_EQ(0, testing::run_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 16, 1 << 16};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    const std::string message = error_of([&] { save(scratch / "a", std::string(1 << 17, 'x')); });
    return message.find("file too large") != message.npos ? 0 : 2;
  }));
  EXPECT_EQ(get(scratch / "a/b"), "1");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

TEST(StagedDirectory, KilledWhileWritingLeavesTheOldOneAndALeftover) {
  const Scratch scratch;
  save(scratch / "a", "1");
  const pid_t child = testing::start_child([&] {
    const StagedDirectory staged(scratch / "a");
    put(staged.path() / "a", "2");
    for (;;) ::pause();
    return 0;
  });
  while (names_in(scratch.path()).size() < 2) std::this_thread::yield();
  ::kill(child, SIGKILL);
  EXPECT_EQ(testing::wait_for(child), -SIGKILL);
  EXPECT_EQ(get(scratch / "a/a"), "1");
  EXPECT_EQ(remove_stale_staging(scratch.path()), 1);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

/// Kills a process that saves over and over at many moments; whether exchange is permitted to it.
class KilledWhileSaving : public ::testing::TestWithParam<bool> {};

TEST_P(KilledWhileSaving, LeavesOneWholeFolder) {
  const Scratch scratch;
  save(scratch / "a", "0");
  for (int round = 0; round < 40; ++round) {
    const pid_t child = testing::start_child([&] {
      if (!GetParam() && !forbid_exchange()) return testing::kSkipped;
      for (int64_t count = 0;; ++count) save(scratch / "a", std::to_string(count));
    });
    std::this_thread::sleep_for(std::chrono::microseconds(20'000 + round * 777));
    ::kill(child, SIGKILL);
    const int code = testing::wait_for(child);
    if (code == testing::kSkipped) GTEST_SKIP() << "seccomp is not permitted here";
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
  testing::run_child([&] {
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
      ".tmp-",           ".tmp-a",         ".tmp-a@",
      ".tmp-a@host",     ".tmp-a@-1-1-1",  ".tmp-a@host-x-1-1",
      "tmp" + own,       ".tmp-a@elsewhere-99999999-1-1",
      "a@host-99999999-1-1", own + "x",
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

TEST(ReplaceLink, StoresTheTargetRelativeToItself) {
  const Scratch scratch;
  fs::create_directories(scratch / "run/1");
  fs::create_directories(scratch / "links");
  replace_link(scratch / "run/last", scratch / "run/1");
  EXPECT_EQ(fs::read_symlink(scratch / "run/last"), "1");
  replace_link(scratch / "links/last", scratch / "run/1/");
  EXPECT_EQ(fs::read_symlink(scratch / "links/last"), "../run/1");
  EXPECT_THAT(names_in(scratch / "links"), ElementsAre("last"));
}

TEST(ReplaceLink, LeadsRightWhereTheFolderIsALinkItself) {
  const Scratch scratch;
  fs::create_directories(scratch / "deep/er");
  put(scratch / "goal", "found");
  fs::create_directory_symlink("deep/er", scratch / "here");
  replace_link(scratch / "here/last", scratch / "goal");
  EXPECT_EQ(get(scratch / "here/last"), "found");
}

TEST(ReplaceLink, RefusesAMissingTargetAndAFolderInItsPlace) {
  const Scratch scratch;
  fs::create_directory(scratch / "a");
  EXPECT_THAT(error_of([&] { replace_link(scratch / "last", scratch / "b"); }),
              HasSubstr("files.write: cannot link"));
  EXPECT_THAT(error_of([&] { replace_link(scratch / "a", scratch / "a"); }),
              HasSubstr("a file or folder stands there; move it away"));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
}

TEST(ReplaceLink, AReaderAlwaysFindsATarget) {
  const Scratch scratch;
  for (const char* name : {"1", "2"}) {
    fs::create_directory(scratch / name);
    put(scratch / name / "file", "x");
  }
  replace_link(scratch / "last", scratch / "1");
  std::atomic<bool> done = false;
  std::atomic<int64_t> found = 0, missed = 0;
  std::thread reader([&] {
    const std::string path = (scratch / "last/file").string();
    while (!done) ++(::access(path.c_str(), R_OK) == 0 ? found : missed);
  });
  for (int i = 0; i < 100; ++i) replace_link(scratch / "last", scratch / (i % 2 == 0 ? "2" : "1"));
  done = true;
  reader.join();
  EXPECT_GT(found, 0);
  EXPECT_EQ(missed, 0);
}

TEST(WriteFileAtomically, WritesAndReplaces) {
  const Scratch scratch;
  write_file_atomically(scratch / "a.json", "{}");
  write_file_atomically(scratch / "a.json", "[]");
  EXPECT_EQ(get(scratch / "a.json"), "[]");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a.json"));
}

TEST(WriteFileAtomically, LeavesTheOldTextWhenItFails) {
  const Scratch scratch;
  put(scratch / "a.json", "old");
  EXPECT_EQ(0, testing::run_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 16, 1 << 16};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    const std::string message =
        error_of([&] { write_file_atomically(scratch / "a.json", std::string(1 << 17, 'x')); });
    return message.find("files.write") == 0 ? 0 : 2;
  }));
  EXPECT_EQ(get(scratch / "a.json"), "old");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a.json"));
}

}  // namespace
}  // namespace levin::files
