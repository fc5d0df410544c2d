#include "levin/files/trust.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/scratch.h"

namespace {

namespace fs = std::filesystem;
using levin::files::detail::distrust;
using levin::posix::open_file;
using levin::test::Scratch;

TEST(Trust, IsInFilesThatNobodyElseWrites) {
  const Scratch scratch;
  const fs::path file = levin::test::put(scratch / "file", "");
  fs::permissions(file, fs::perms(0755));
  EXPECT_EQ(distrust(file), "");
  EXPECT_EQ(distrust(scratch / "none"), "");
  fs::permissions(file, fs::perms(0757));
  EXPECT_EQ(distrust(file), "the file may be written by other users");
  EXPECT_EQ(distrust(open_file(file, O_RDONLY)), "the file may be written by other users");
  fs::permissions(file, fs::perms(0755));
  fs::permissions(scratch.path(), fs::perms(0777));
  EXPECT_EQ(distrust(file), "its folder may be written by other users");
  EXPECT_EQ(distrust(open_file(scratch.path(), O_RDONLY)),
            "the folder may be written by other users");
  fs::permissions(scratch.path(), fs::perms(01777));  // as /tmp
  EXPECT_EQ(distrust(file), "");
  fs::create_symlink(file, scratch / "link");
  EXPECT_EQ(distrust(scratch / "link"), "");
}

TEST(Trust, IsNotInOthersFilesAndGroups) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const Scratch scratch;
  const fs::path file = levin::test::put(scratch / "file", "");
  fs::permissions(file, fs::perms(0775));
  EXPECT_EQ(distrust(file), "");  // root's own group
  ASSERT_EQ(::chown(file.c_str(), 0, 100), 0);
  EXPECT_EQ(distrust(file), "the file may be written by other users");
  fs::permissions(file, fs::perms(0755));
  ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
  EXPECT_EQ(distrust(file), "the file belongs to the user 65534");
}

}  // namespace
