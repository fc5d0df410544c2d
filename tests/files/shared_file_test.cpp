#include "levin/files/shared_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/file_limit.h"
#include "tests/support/scratch.h"
#include "tests/support/small_disk.h"

namespace levin::files {
namespace {

using test::error_of;
using test::get;
using test::put;
using test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::span<const std::byte> written(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(SharedFile, HoldsWhatProcessesWriteAtTheirPlaces) {
  const Scratch scratch;
  for (const Room room : {Room::kNow, Room::kAsWritten}) {
    const auto path = scratch / (room == Room::kNow ? "now" : "as_written");
    create_file(path, 10, room);
    EXPECT_EQ(get(path), std::string(10, '\0'));
    for (const auto& [place, text] : {std::pair(6, "late"), std::pair(2, "soon")}) {
      EXPECT_EQ(0, test::run_child([&] {
                  SharedFile file(path);
                  file.write_at(place, written(text));
                  file.sync();
                  return 0;
                }));
    }
    EXPECT_EQ(get(path), std::string("\0\0soonlate", 10));
  }
}

TEST(SharedFile, IsMadeWhereNoneStands) {
  const Scratch scratch;
  put(scratch / "f", "mine");
  EXPECT_THAT(error_of([&] { create_file(scratch / "f", 3); }),
              AllOf(StartsWith("files.write: cannot make "), HasSubstr("of 3 bytes: file exists")));
  EXPECT_EQ(get(scratch / "f"), "mine");
  EXPECT_THAT(error_of([&] { give_size(scratch / "none", 3); }),
              HasSubstr("no such file or directory"));
  give_size(put(scratch / "empty", ""), 3);
  EXPECT_EQ(get(scratch / "empty"), std::string(3, '\0'));
}

TEST(SharedFile, IsOpenedWhereItIsAndNotByALink) {
  const Scratch scratch;
  EXPECT_THAT(error_of([&] { SharedFile(scratch / "none"); }),
              AllOf(StartsWith("files.write: cannot open "), HasSubstr("no such file")));
  put(scratch / "f", "mine");
  std::filesystem::create_symlink("f", scratch / "link");
  EXPECT_THAT(error_of([&] { SharedFile(scratch / "link"); }), StartsWith("files.write: "));
}

TEST(SharedFile, IsWrittenWithinItsSizeAlone) {
  const Scratch scratch;
  create_file(scratch / "f", 4);
  SharedFile file(scratch / "f");
  for (const int64_t place : {-1, 1, 5}) {
    EXPECT_THAT(error_of([&] { file.write_at(place, written("four")); }),
                AllOf(StartsWith("files.write: cannot write 4 bytes at byte "),
                      HasSubstr("it has 4 bytes")));
  }
  file.write_at(4, {});
  EXPECT_EQ(get(scratch / "f"), std::string(4, '\0'));
}

TEST(SharedFile, SaysWhereTheDiskWasFull) {
  const Scratch scratch;
  const int code = test::run_child([&] {
    if (!test::mount_small_disk(scratch.str(), 16384)) return test::kSkipped;
    create_file(scratch / "f", 65536);
    SharedFile file(scratch / "f");
    const std::string error = error_of([&] { file.write_at(0, written(std::string(65536, 'x'))); });
    const bool is_it =
        error.starts_with("files.write: cannot write ") &&
        error.find(" at byte 16384: no space left on device; free some space") != std::string::npos;
    return is_it ? 0 : 1;
  });
  if (code == test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

TEST(SharedFile, ThatMayNotBeSoLargeIsAnErrorWhenItIsMade) {
  const Scratch scratch;
  EXPECT_EQ(0, test::run_child([&] {
              test::limit_files(1000);
              const std::string error = error_of([&] { create_file(scratch / "f", 2000); });
              return error.find("file too large") == std::string::npos ? 1 : 0;
            }));
}

}  // namespace
}  // namespace levin::files
