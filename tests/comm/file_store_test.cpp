#include "levin/comm/file_store/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/comm/ranks.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/small_disk.h"

namespace {

using levin::comm::FileStore;
using levin::test::error_of;
using levin::test::get;
using levin::test::put;
using levin::test::Scratch;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<uint8_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }

TEST(FileStore, HoldsWordsNumbersAndWhatWasDeleted) {
  const Scratch scratch;
  FileStore store(scratch / "store", 0), other(scratch / "store", 0);
  store.set("word", bytes("one"));
  EXPECT_EQ(other.get("word"), bytes("one"));
  other.set("word", bytes(std::string("t\0wo", 4)));
  EXPECT_EQ(store.get("word"), bytes(std::string("t\0wo", 4)));
  EXPECT_EQ(store.add("sum", 3), 3);
  EXPECT_EQ(other.add("sum", -5), -2);
  EXPECT_TRUE(store.check({"word", "sum"}));
  EXPECT_FALSE(store.check({"word", "none"}));
  EXPECT_EQ(other.getNumKeys(), 2);
  EXPECT_EQ(store.compareSet("lock", {}, bytes("mine")), bytes("mine"));
  EXPECT_EQ(other.compareSet("lock", {}, bytes("theirs")), bytes("mine"));
  EXPECT_EQ(other.compareSet("lock", bytes("mine"), bytes("theirs")), bytes("theirs"));
  EXPECT_EQ(store.compareSet("none", bytes("some"), bytes("other")), bytes("some"));
  EXPECT_TRUE(other.deleteKey("lock"));
  EXPECT_FALSE(store.deleteKey("lock"));
  EXPECT_FALSE(store.check({"lock"}));
  EXPECT_EQ(store.clone()->get("word"), bytes(std::string("t\0wo", 4)));
}

TEST(FileStore, AQuestionWritesNothing) {
  const Scratch scratch;
  FileStore store(scratch / "store", 0);
  store.add("sum", 3);
  const auto before = std::filesystem::file_size(scratch / "store");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(store.add("sum", 0), 3);
  EXPECT_EQ(std::filesystem::file_size(scratch / "store"), before);
}

TEST(FileStore, CountsOfManyProcessesAreNotLost) {
  const auto words = levin::test::run_ranks(4, [](int64_t rank, const auto& folder) {
    FileStore store(folder / "store", 0);
    for (int i = 0; i < 200; ++i) store.add("sum", 1 + rank);
    store.add("done", 1);
    while (store.add("done", 0) < 4) std::this_thread::sleep_for(milliseconds(1));
    return std::to_string(store.add("sum", 0));
  });
  EXPECT_THAT(words, Each("2000"));
}

// LibTorch's waits for the other half for ever, with the lock in its hand.
TEST(FileStore, HalfAWordIsPassedOverAndWrittenOver) {
  const Scratch scratch;
  std::string whole;
  {
    FileStore store(scratch / "store", 0);
    store.set("first", bytes("1"));
    whole = get(scratch / "store");
    store.set("second", bytes("22"));
  }
  const std::string both = get(scratch / "store");
  for (size_t size = 0; size < both.size(); ++size) {
    put(scratch / "store", both.substr(0, size));
    FileStore reader(scratch / "store", 0), writer(scratch / "store", 0);
    EXPECT_EQ(reader.check({"first"}), size >= whole.size()) << size;
    EXPECT_FALSE(reader.check({"second"})) << size;
    writer.set("third", bytes("333"));
    EXPECT_EQ(reader.get("third"), bytes("333")) << size;
    EXPECT_EQ(reader.getNumKeys(), size >= whole.size() ? 2 : 1) << size;
  }
}

TEST(FileStore, RanksThatAreKilledWhileTheyWriteHoldUpNobody) {
  const Scratch scratch;
  FileStore store(scratch / "store", 0);
  int64_t before = 0;
  for (int i = 0; i < 50; ++i) {
    const pid_t child = levin::test::start_child([&]() -> int {
      FileStore theirs(scratch / "store", 0);
      while (true) theirs.add("theirs", 1);
    });
    while (store.add("theirs", 0) <= before) std::this_thread::sleep_for(milliseconds(1));
    ::kill(child, SIGKILL);
    levin::test::wait_for(child);
    EXPECT_EQ(store.add("own", 1), i + 1);
    before = store.add("theirs", 0);
  }
}

TEST(FileStore, WhoWaitsHasAnEnd) {
  const Scratch scratch;
  FileStore store(scratch / "store", 0);
  store.setTimeout(milliseconds(200));
  try {
    store.get("none");
    ADD_FAILURE() << "no error";
  } catch (const c10::DistStoreError& error) {
    EXPECT_THAT(error.msg(),
                AllOf(StartsWith("timed out: waited 0.2 s for key none in the store's file"),
                      HasSubstr((scratch / "store").string())));
  }
  store.set("key", bytes("1"));
  const levin::posix::Descriptor held = levin::posix::open_file(scratch / "store", O_RDONLY);
  ASSERT_EQ(::flock(held.number(), LOCK_EX), 0);
  EXPECT_THAT(error_of([&] { store.check({"key"}); }),
              AllOf(StartsWith("comm.store: "), HasSubstr("stayed locked until the timeout")));
}

TEST(FileStore, TakesNoFileThatIsNone) {
  const Scratch scratch;
  const auto refusal_of = [&](std::string_view contents) {
    const auto path = put(scratch / "file", contents);
    const std::string words = error_of([&] { FileStore(path, 0).set("key", bytes("1")); });
    EXPECT_EQ(get(path), contents);
    return words;
  };
  EXPECT_THAT(refusal_of("notes of mine"), HasSubstr("is not a store's file"));
  EXPECT_THAT(refusal_of("levin store 2\nand more"), HasSubstr("is not a store's file"));
  EXPECT_THAT(refusal_of("levin store 1\n" + std::string(8, '\xfe')),
              HasSubstr("is damaged at byte 14"));
  put(scratch / "target", "");
  std::filesystem::create_symlink(scratch / "target", scratch / "link");
  EXPECT_THAT(error_of([&] { FileStore(scratch / "link", 0).check({"key"}); }),
              HasSubstr("cannot be opened"));
  if (::geteuid() != 0) return;
  put(scratch / "file", "");
  ASSERT_EQ(::chown((scratch / "file").c_str(), 12345, 12345), 0);
  EXPECT_THAT(error_of([&] { FileStore(scratch / "file", 0).check({"key"}); }),
              HasSubstr("belongs to the user 12345"));
}

TEST(FileStore, AFullDiskIsAnErrorThatLosesNothing) {
  const Scratch scratch;
  const int code = levin::test::run_child([&] {
    if (!levin::test::mount_small_disk(scratch.str(), 64 << 10)) return levin::test::kSkipped;
    FileStore store(scratch / "store", 0);
    store.set("small", bytes("1"));
    const std::string words =
        error_of([&] { store.set("large", std::vector<uint8_t>(1 << 20, 'x')); });
    EXPECT_THAT(words, AllOf(StartsWith("comm.store: "), HasSubstr("no space left on device")));
    FileStore other(scratch / "store", 0);
    EXPECT_EQ(other.get("small"), bytes("1"));
    EXPECT_FALSE(other.check({"large"}));
    store.set("next", bytes("2"));
    EXPECT_EQ(other.get("next"), bytes("2"));
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  if (code == levin::test::kSkipped) GTEST_SKIP() << "wants a user namespace";
  EXPECT_EQ(code, 0);
}

TEST(FileStore, TheLastWorkerRemovesTheFile) {
  const Scratch scratch;
  auto first = std::make_unique<FileStore>(scratch / "store", 2);
  auto second = std::make_unique<FileStore>(scratch / "store", 2);
  first->set("key", bytes("1"));
  first.reset();
  EXPECT_EQ(second->get("key"), bytes("1"));
  second.reset();
  EXPECT_FALSE(std::filesystem::exists(scratch / "store"));
  FileStore next(scratch / "store", 0);
  EXPECT_FALSE(next.check({"key"}));
}

}  // namespace
