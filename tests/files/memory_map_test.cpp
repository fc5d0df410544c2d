#include "levin/files/memory_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::files {
namespace {

using test::error_of;
using test::put;
using test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string text(const MemoryMap& map) {
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

TEST(MemoryMap, ShowsTheBytesOfTheFile) {
  const Scratch scratch;
  EXPECT_EQ(text(MemoryMap(put(scratch / "a", "some bytes"))), "some bytes");
}

TEST(MemoryMap, OfAnEmptyFileIsEmpty) {
  const Scratch scratch;
  EXPECT_TRUE(MemoryMap(put(scratch / "a", "")).bytes().empty());
}

TEST(MemoryMap, KnowsWhichAddressesAreOfMapsThatAreThere) {
  const Scratch scratch;
  const std::string beside = "no map";
  const std::byte* begin = nullptr;
  {
    const MemoryMap map(put(scratch / "a", "some bytes")), other(put(scratch / "b", "more"));
    begin = map.bytes().data();
    EXPECT_TRUE(is_mapped(begin));
    EXPECT_TRUE(is_mapped(begin + 9));
    EXPECT_FALSE(is_mapped(begin + 10));
    EXPECT_FALSE(is_mapped(begin - 1));
    EXPECT_TRUE(is_mapped(other.bytes().data() + 3));
    EXPECT_FALSE(is_mapped(beside.data()));
    EXPECT_FALSE(is_mapped(nullptr));
  }
  EXPECT_FALSE(is_mapped(begin));
}

TEST(MemoryMap, OutlivesTheFilesName) {
  const Scratch scratch;
  const MemoryMap map(put(scratch / "a", "some bytes"));
  std::filesystem::remove(scratch / "a");
  EXPECT_EQ(text(map), "some bytes");
}

TEST(MemoryMap, MovesAsAValue) {
  const Scratch scratch;
  MemoryMap first(put(scratch / "a", "first"));
  MemoryMap second(put(scratch / "b", "second"));
  MemoryMap third = std::move(first);
  EXPECT_TRUE(first.bytes().empty());
  second = std::move(third);
  EXPECT_EQ(text(second), "first");
}

TEST(MemoryMap, NamesPathAndReasonOfWhatItCannotRead) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { MemoryMap map(scratch / "a"); }),
              AllOf(StartsWith("files.read: cannot read " + (scratch / "a").string()),
                    HasSubstr("no such file or directory; check the path")));
  EXPECT_THAT(error_of([&] { MemoryMap map(scratch.path()); }), HasSubstr("is a directory"));
  EXPECT_THAT(error_of([&] { MemoryMap map(scratch / "pipe"); }),
              HasSubstr("it is a pipe, wanted a file"));
}

TEST(MemoryMap, NamesMissingPermission) {
  const Scratch scratch;
  const auto path = put(scratch / "a", "secret");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  // Root may read everything, so the child becomes somebody.
  const int code = test::run_child([&] {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) return test::kSkipped;
    const std::string message = error_of([&] { MemoryMap map(path); });
    return message.find("permission denied; check its permissions") != message.npos ? 0 : 1;
  });
  if (code == test::kSkipped) GTEST_SKIP() << "root may not become another user here";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace levin::files
