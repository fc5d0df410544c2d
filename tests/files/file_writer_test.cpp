#include "levin/files/file_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
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

std::string pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 + i / 257);
  return bytes;
}

TEST(FileWriter, WritesWhatItIsGivenInAnyPieces) {
  const Scratch scratch;
  // Around the size of the buffer, 256 KiB.
  for (const size_t piece : {size_t{1000}, size_t{262143}, size_t{262144}, size_t{700001}}) {
    const std::string bytes = pattern(2'000'000);
    FileWriter file(scratch / "a");
    for (size_t at = 0; at < bytes.size(); at += piece) {
      file.write(std::string_view(bytes).substr(at, piece));
    }
    EXPECT_EQ(file.size(), 2'000'000);
    const FileDigest written = file.close();
    EXPECT_EQ(written.size, 2'000'000);
    EXPECT_EQ(written, digest(scratch / "a")) << piece;
    EXPECT_TRUE(get(scratch / "a") == bytes) << piece;
  }
}

TEST(FileWriter, EmptiesTheFileThereIs) {
  const Scratch scratch;
  put(scratch / "a", "something longer");
  FileWriter file(scratch / "a");
  file.write("new");
  file.close();
  EXPECT_EQ(get(scratch / "a"), "new");
}

TEST(FileWriter, FlushShowsTheBytesToReaders) {
  const Scratch scratch;
  FileWriter file(scratch / "a");
  file.write("abc");
  EXPECT_EQ(get(scratch / "a"), "");
  file.flush();
  EXPECT_EQ(get(scratch / "a"), "abc");
}

TEST(FileWriter, MovesAsAValue) {
  const Scratch scratch;
  FileWriter first(scratch / "a");
  first.write("abc");
  FileWriter second = std::move(first);
  second.write("def");
  EXPECT_EQ(second.close().size, 6);
  EXPECT_EQ(get(scratch / "a"), "abcdef");
}

TEST(FileWriter, DigestIsXxh3) {
  const Scratch scratch;
  // XXH3_64bits of nothing and of "abc" with seed 0, from the xxhash package of PyPI.
  EXPECT_EQ(digest(put(scratch / "empty", "")), (FileDigest{0, 0x2d06800538d394c2}));
  EXPECT_EQ(digest(put(scratch / "abc", "abc")), (FileDigest{3, 0x78af5f94892f3950}));
}

TEST(FileWriter, OneFlippedBitChangesTheDigest) {
  const Scratch scratch;
  std::string bytes = pattern(1000);
  const FileDigest whole = digest(put(scratch / "a", bytes));
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 61) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(digest(put(scratch / "a", damaged)), whole) << bit;
  }
}

TEST(FileWriter, NamesPathAndReasonWhereItCannotWrite) {
  const Scratch scratch;
  EXPECT_THAT(error_of([&] { FileWriter file(scratch / "no" / "a"); }),
              AllOf(StartsWith("files.write: cannot write " + (scratch / "no/a").string()),
                    HasSubstr("after 0 bytes: no such file or directory; check the path")));
  EXPECT_THAT(error_of([&] { FileWriter file(scratch.path()); }), HasSubstr("is a directory"));
}

TEST(FileWriter, ReadingADigestNamesPathAndReason) {
  const Scratch scratch;
  EXPECT_THAT(error_of([&] { digest(scratch / "a"); }),
              AllOf(StartsWith("files.read: cannot read " + (scratch / "a").string()),
                    HasSubstr("no such file")));
  EXPECT_THAT(error_of([&] { digest(scratch.path()); }), HasSubstr("files.read"));
}

TEST(FileWriter, WritesNothingAfterAnErrorOrTheEnd) {
  FileWriter full("/dev/full");
  full.write("abc");
  EXPECT_THAT(error_of([&] { full.flush(); }), HasSubstr("no space left on device; free some"));
  EXPECT_THAT(error_of([&] { full.write("abc"); }), HasSubstr("abandoned after an error"));
  EXPECT_THAT(error_of([&] { full.close(); }), HasSubstr("abandoned after an error"));
  const Scratch scratch;
  FileWriter closed(scratch / "a");
  closed.close();
  EXPECT_THAT(error_of([&] { closed.write("abc"); }), HasSubstr("was closed"));
}

TEST(FileWriter, SaysHowMuchReachedAFileThatMayNotGrow) {
  const Scratch scratch;
  const std::string path = (scratch / "a").string();
  EXPECT_EQ(0, test::run_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1 << 16, 1 << 16};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              FileWriter file(path);
              const std::string message = error_of([&] { file.write(pattern(1 << 20)); });
              const std::string wanted =
                  "files.write: cannot write " + path +
                  " after 65536 bytes: file too large; raise the limit on the size of "
                  "a file (ulimit -f)";
              return message == wanted ? 0 : 2;
            }));
}

TEST(FileWriter, SaysHowMuchReachedAFullDisk) {
  const Scratch scratch;
  const int code = test::run_child([&] {
    if (!test::mount_small_disk(scratch.path().string(), 1 << 16)) return test::kSkipped;
    FileWriter file(scratch / "a");
    const std::string message = error_of([&] { file.write(pattern(1 << 20)); });
    return message.find("after 65536 bytes: no space left on device") != message.npos ? 0 : 1;
  });
  if (code == test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

TEST(FileWriter, GoesOnAfterSignalsAndShortWrites) {
  const Scratch scratch;
  const std::string path = (scratch / "pipe").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string bytes = pattern(3'000'000);
  // A child, so that the timer interrupts no other thread than the one that writes.
  const pid_t writer = test::start_child([&] {
    struct sigaction action{};
    action.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &action, nullptr);
    FileWriter file(path);
    const itimerval often{{0, 500}, {0, 500}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    file.write(bytes);
    file.flush();
    return 0;
  });
  std::string received;
  std::ifstream pipe(path, std::ios::binary);
  std::vector<char> piece(100'000);
  while (pipe.read(piece.data(), static_cast<std::streamsize>(piece.size())) || pipe.gcount() > 0) {
    received.append(piece.data(), static_cast<size_t>(pipe.gcount()));
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  EXPECT_EQ(test::wait_for(writer), 0);
  EXPECT_TRUE(received == bytes);
}

}  // namespace
}  // namespace levin::files
