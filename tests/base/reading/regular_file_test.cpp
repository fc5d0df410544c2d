#include "levin/base/reading/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/scratch.h"

namespace levin::posix {
namespace {

using test::put;
using test::Scratch;
using ::testing::HasSubstr;

std::string refusal_of(const std::filesystem::path& path) {
  std::string opened, read;
  EXPECT_FALSE(open_regular(path, opened)) << path;
  EXPECT_FALSE(read_text(path, read)) << path;
  EXPECT_EQ(opened, read);
  return read;
}

TEST(RegularFile, GivesItsTextAndSize) {
  const Scratch scratch;
  std::string why;
  const std::string long_text(200'000, 'x');
  for (const std::string& text : {std::string(), std::string("a\nb"), long_text}) {
    const auto path = put(scratch / "file", text);
    EXPECT_EQ(read_text(path, why), text);
    EXPECT_EQ(open_regular(path, why)->size, std::ssize(text));
  }
  std::filesystem::create_symlink(scratch / "file", scratch / "link");
  EXPECT_EQ(read_text(scratch / "link", why), long_text);
  EXPECT_EQ(why, "");
}

// A reader that opened a pipe as a file would wait here for ever.
TEST(RegularFile, NothingElseIsRead) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal_of(scratch / "pipe"), "it is a pipe, wanted a file");
  std::filesystem::create_symlink(scratch / "pipe", scratch / "link");
  EXPECT_EQ(refusal_of(scratch / "link"), "it is a pipe, wanted a file");
  EXPECT_EQ(refusal_of("/dev/zero"), "it is a device, wanted a file");
  EXPECT_THAT(refusal_of(scratch.path()), HasSubstr("is a directory"));
  EXPECT_THAT(refusal_of(scratch / "none"), HasSubstr("no such file"));
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  (scratch / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            0);
  EXPECT_EQ(refusal_of(scratch / "socket"), "it is a socket, wanted a file");
}

TEST(RegularFile, StreamsThatAreOpenAreReadAsTexts) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor reads(ends[0]);
  Descriptor writes(ends[1]);
  ASSERT_EQ(::write(writes.number(), "a = 1\n", 6), 6);
  writes.close();
  std::string why;
  EXPECT_EQ(read_text("/dev/fd/" + std::to_string(reads.number()), why), "a = 1\n");
  EXPECT_EQ(why, "");
}

TEST(RegularFile, ATextHasAnEnd) {
  std::string why;
  const Descriptor zero = open_file("/dev/zero", 0);
  EXPECT_FALSE(read_text("/dev/fd/" + std::to_string(zero.number()), why));
  EXPECT_THAT(why, HasSubstr("more than 64 MiB"));
}

}  // namespace
}  // namespace levin::posix
