#include "levin/files/atomic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "levin/files/folder.h"
#include "tests/files/saving.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/small_disk.h"

namespace levin::files {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::get;
using test::names_in;
using test::put;
using test::Scratch;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::forbid_exchange;
using ::testing::HasSubstr;
using testing::save;
using ::testing::StartsWith;

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
  const int code = test::run_child([&] {
    if (!forbid_exchange()) return test::kSkipped;
    save(scratch / "a", "1");
    save(scratch / "a", "2");
    return 0;
  });
  if (code == test::kSkipped) GTEST_SKIP() << "seccomp is not permitted here";
  EXPECT_EQ(code, 0);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
  EXPECT_EQ(get(scratch / "a/a"), "2");
}

TEST(StagedDirectory, ReplacesNoFolderThatHoldsWhatItDoesNotKnow) {
  const Scratch scratch;
  fs::create_directories(scratch / "results/deep");
  put(scratch / "results/deep/thesis.txt", "a year's work");
  fs::create_directory_symlink("results", scratch / "link");
  const auto refused = [&](const fs::path& path) {
    return error_of([&] {
      StagedDirectory(path, [](const fs::path& folder) { return folder.filename() == "ours"; });
    });
  };
  EXPECT_THAT(refused(scratch / "results"),
              AllOf(StartsWith("files.replace: cannot replace "), HasSubstr("it holds 'deep'"),
                    HasSubstr("name an empty or new folder")));
  EXPECT_THAT(refused(scratch / "results/"), StartsWith("files.replace: "));
  EXPECT_THAT(refused(scratch / "link"), HasSubstr("it is a link"));
  EXPECT_THAT(error_of([&] { StagedDirectory staged(scratch / "results"); }),
              StartsWith("files.replace: "));
  EXPECT_EQ(get(scratch / "results/deep/thesis.txt"), "a year's work");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("link", "results"));
  fs::create_directory(scratch / "empty");
  save(scratch / "empty", "1");
  EXPECT_EQ(get(scratch / "empty/a"), "1");
}

TEST(StagedDirectory, DoesNotReplaceTheFolderThatTheProcessWorksIn) {
  const Scratch scratch;
  EXPECT_EQ(0, test::run_child([&] {
              if (::chdir(scratch.path().c_str()) != 0) return 1;
              const std::string here = error_of([] { StagedDirectory staged("."); });
              const std::string whole = error_of([&] { StagedDirectory staged(scratch.path()); });
              return here.find("it is the working directory of this program") != here.npos &&
                             here == whole
                         ? 0
                         : 2;
            }));
}

TEST(StagedDirectory, KeepsWhatCameToItsPlaceMeanwhile) {
  const Scratch scratch;
  StagedDirectory staged(scratch / "a");
  put(staged.path() / "file", "new");
  fs::create_directory(scratch / "a");
  put(scratch / "a/file", "theirs");
  EXPECT_THAT(error_of([&] { staged.commit(); }), StartsWith("files.replace: "));
  EXPECT_EQ(get(scratch / "a/file"), "theirs");
}

// Each finds nothing in its place, and the later one what the other has just put there.
TEST(StagedDirectory, OfTwoJobsAtOnceIsOneOfThem) {
  const Scratch scratch;
  for (int round = 0; round < 300; ++round) {
    const fs::path place = scratch / std::to_string(round);
    const auto any = [](const fs::path&) { return true; };
    StagedDirectory first(place, any), second(place, any);
    put(first.path() / "a", "1");
    put(second.path() / "a", "2");
    std::atomic<int> waiting = 2;
    std::string said[2];
    const auto commit = [&](StagedDirectory& staged, std::string& words) {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      words = error_of([&] { staged.commit(); });
    };
    std::thread other([&] { commit(second, said[1]); });
    commit(first, said[0]);
    other.join();
    ASSERT_EQ(said[0] + said[1], "no errorno error") << "round " << round;
    ASSERT_THAT(get(place / "a"), ::testing::AnyOf("1", "2"));
  }
}

TEST(StagedFile, ReplacesWhatStoodThereWhenItIsCommitted) {
  const Scratch scratch;
  put(scratch / "a", "old");
  {
    const StagedFile given_up(scratch / "a");
    put(given_up.path(), "half");
  }
  EXPECT_EQ(get(scratch / "a"), "old");
  StagedFile staged(scratch / "a");
  put(staged.path(), "new");
  EXPECT_EQ(get(scratch / "a"), "old");
  staged.commit();
  EXPECT_EQ(get(scratch / "a"), "new");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
  EXPECT_THAT(error_of([&] { StagedFile staged(scratch / "no/such/folder"); }),
              StartsWith("files.write: cannot make the file"));
}

TEST(RemoveFolder, LeavesNothingAndNamesWhatItCannotRemove) {
  const Scratch scratch;
  fs::create_directories(scratch / "a/b");
  remove_folder(scratch / "a");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre());
  EXPECT_THAT(error_of([&] { remove_folder(scratch / "a"); }), StartsWith("files.write: "));
}

TEST(Folder, EntriesAreInOrderAndNoneWhereThereIsNoFolder) {
  const Scratch scratch;
  for (const char* name : {"b", "a", "c"}) put(scratch / name, "");
  EXPECT_THAT(entries_of(scratch.path()), ElementsAre(scratch / "a", scratch / "b", scratch / "c"));
  EXPECT_THAT(entries_of(scratch / "a"), ElementsAre());
  EXPECT_THAT(entries_of(scratch / "none"), ElementsAre());
}

TEST(StagedDirectory, RefusesToReplaceAFileAndToCommitTwice) {
  const Scratch scratch;
  put(scratch / "file", "");
  EXPECT_THAT(error_of([&] { StagedDirectory staged(scratch / "file"); }),
              HasSubstr("files.write: cannot replace"));
  StagedDirectory staged(scratch / "a");
  staged.commit();
  EXPECT_THAT(error_of([&] { staged.commit(); }), HasSubstr("is already committed"));
}

TEST(StagedDirectory, NamesTheFolderItCannotMake) {
  EXPECT_THAT(error_of([] { StagedDirectory staged(""); }), StartsWith("files.write: cannot"));
  const Scratch scratch;
  put(scratch / "file", "");
  EXPECT_THAT(error_of([&] { StagedDirectory staged(scratch / "file" / "a"); }),
              HasSubstr("files.write: cannot make the folder " + (scratch / "file").string()));
}

TEST(StagedDirectory, LeavesTheOldOneWholeOnAFullDisk) {
  const Scratch scratch;
  const int code = test::run_child([&] {
    if (!test::mount_small_disk(scratch.path().string(), 1 << 16)) return test::kSkipped;
    save(scratch / "a", "1");
    const std::string message = error_of([&] { save(scratch / "a", std::string(1 << 17, 'x')); });
    if (message.find("no space left on device") == std::string::npos) return 1;
    return get(scratch / "a/b") == "1" && names_in(scratch.path()).size() == 1 ? 0 : 2;
  });
  if (code == test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

TEST(StagedDirectory, LeavesTheOldOneWholeWhenFilesMayNotGrow) {
  const Scratch scratch;
  save(scratch / "a", "1");
  EXPECT_EQ(0, test::run_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1 << 16, 1 << 16};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              const std::string message =
                  error_of([&] { save(scratch / "a", std::string(1 << 17, 'x')); });
              return message.find("file too large") != message.npos ? 0 : 2;
            }));
  EXPECT_EQ(get(scratch / "a/b"), "1");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
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
              HasSubstr("a file or folder exists at that path; move it away"));
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
  EXPECT_EQ(0, test::run_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1 << 16, 1 << 16};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              const std::string message = error_of(
                  [&] { write_file_atomically(scratch / "a.json", std::string(1 << 17, 'x')); });
              return message.find("files.write") == 0 ? 0 : 2;
            }));
  EXPECT_EQ(get(scratch / "a.json"), "old");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a.json"));
}

}  // namespace
}  // namespace levin::files
