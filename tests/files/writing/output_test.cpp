#include "levin/files/writing/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>

#include "levin/files/file_writer.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::files {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::get;
using test::put;
using test::Scratch;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void say(const posix::Descriptor& file, const std::string& text) {
  ASSERT_EQ(::write(file.number(), text.data(), text.size()), std::ssize(text));
}

TEST(Output, ANewFileStandsBesideWhatIsThere) {
  const Scratch scratch;
  put(scratch / "a.log", "somebody's");
  fs::create_symlink(scratch / "elsewhere", scratch / "a.2.log");
  fs::create_directory(scratch / "a.3.log");
  fs::path path = scratch / "a.log";
  say(create_beside(path), "ours");
  EXPECT_EQ(path, scratch / "a.4.log");
  EXPECT_EQ(get(path), "ours");
  EXPECT_EQ(get(scratch / "a.log"), "somebody's");
  EXPECT_FALSE(fs::exists(scratch / "elsewhere"));
  fs::path first = scratch / "new/folder/file";
  EXPECT_TRUE(create_beside(first));
  EXPECT_EQ(first, scratch / "new/folder/file");
  fs::path none = scratch / "a.log/file";
  EXPECT_FALSE(create_beside(none));
  EXPECT_EQ(errno, ENOTDIR);
}

TEST(Output, OpensNoLinkAndNoPipe) {
  const Scratch scratch;
  put(scratch / "own", "old");
  say(open_own(scratch / "own", O_WRONLY | O_APPEND), " new");
  EXPECT_EQ(get(scratch / "own"), "old new");
  say(open_own(scratch / "own", O_WRONLY | O_TRUNC), "x");
  EXPECT_EQ(get(scratch / "own"), "x");
  fs::create_symlink(scratch / "own", scratch / "link");
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "pipe", "none"}) {
    EXPECT_FALSE(open_own(scratch / name, O_WRONLY | O_TRUNC)) << name;
    EXPECT_FALSE(open_own(scratch / name, O_RDWR)) << name;
  }
  EXPECT_EQ(get(scratch / "own"), "x");
  EXPECT_THAT(error_of([&] { FileWriter file(scratch / "link"); }), StartsWith("files.write: "));
  EXPECT_TRUE(open_own(scratch / "private", O_RDWR | O_CREAT, /*private_to_user=*/true));
  EXPECT_EQ(fs::status(scratch / "private").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST(Output, AddsToItsOwnFilesAlone) {
  const Scratch scratch;
  append_text(scratch / "a", "== step 1\n", "== step ");
  append_text(scratch / "a", "== step 2\n", "== step ");
  EXPECT_EQ(get(scratch / "a"), "== step 1\n== step 2\n");
  append_text(put(scratch / "empty", ""), "== step 1\n", "== step ");
  EXPECT_EQ(get(scratch / "empty"), "== step 1\n");
  put(scratch / "note", "== a note");
  fs::create_symlink(scratch / "a", scratch / "link");
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  const std::pair<const char*, const char*> cases[] = {
      {"note", "this command has not written that file"},
      {"link", "it is a link"},
      {"pipe", "it is a pipe"}};
  for (const auto& [name, why] : cases) {
    const std::string said =
        error_of([&] { append_text(scratch / name, "== step 3\n", "== step "); });
    EXPECT_THAT(said, StartsWith("files.replace: cannot ")) << name;
    EXPECT_THAT(said, HasSubstr(why));
  }
  EXPECT_EQ(get(scratch / "note"), "== a note");
  EXPECT_EQ(get(scratch / "a"), "== step 1\n== step 2\n");
}

}  // namespace
}  // namespace levin::files
