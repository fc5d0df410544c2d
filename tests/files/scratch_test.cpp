// Scratch files and the swapper: what is written is read, errors have their reasons, nothing is left behind.
#include "tests/support/scratch.h"

#include <ATen/ops/equal.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "levin/base/error.h"
#include "levin/files/scratch/scratch_file.h"
#include "levin/files/scratch/swapper.h"
#include "levin/files/writing/output.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/file_limit.h"
#include "tests/support/small_disk.h"

namespace levin::files {
namespace scratch_files {
namespace {

using test::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int64_t kBlock = 100'000;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A test's folder may lie on a tmpfs.
std::shared_ptr<ScratchFile> file_in(const test::Scratch& folder) {
  return ScratchFile::create({.folder = folder.path(), .allow_tmpfs = true});
}

std::string text_at(ScratchFile& file, int64_t begin, size_t size) {
  std::string text(size, '?');
  file.read(begin, std::as_writable_bytes(std::span(text)));
  return text;
}

ByteRanges block(int64_t number) { return {{number * kBlock, (number + 1) * kBlock}}; }

/// The descriptor of the scratch file that this process has open, which has no name.
int descriptor_of_scratch() {
  for (int number = 3; number < 1024; ++number) {
    std::string link(4096, '\0');
    const std::string path = "/proc/self/fd/" + std::to_string(number);
    const ssize_t size = ::readlink(path.c_str(), link.data(), link.size());
    if (size <= 0) continue;
    link.resize(static_cast<size_t>(size));
    if (link.find("levin_test_") != std::string::npos && link.ends_with("(deleted)")) return number;
  }
  return -1;
}

bool is_in_memory(const std::filesystem::path& folder) {
  struct statfs status{};
  return ::statfs(folder.c_str(), &status) == 0 && status.f_type == TMPFS_MAGIC;
}

TEST(ScratchFile, GivesZerosAndReadsWhatWasWritten) {
  const test::Scratch folder;
  const auto file = file_in(folder);
  const int64_t first = file->take(10), second = file->take(kBlock);
  EXPECT_EQ(second % 64, 0);
  EXPECT_EQ(text_at(*file, second + 7, 3), std::string(3, '\0'));
  file->write(second + 7, as_bytes("abc"));
  file->drop(second + 7, 3);
  EXPECT_EQ(text_at(*file, second + 6, 5), std::string("\0abc\0", 5));
  EXPECT_EQ(text_at(*file, first, 10), std::string(10, '\0'));
  EXPECT_EQ(file->bytes_written(), 3);
  EXPECT_EQ(file->bytes_read(), 18);
  EXPECT_GE(file->size(), 10 + kBlock);
}

TEST(ScratchFile, TakesTheSpaceOnTheDisk) {
  const test::Scratch folder;
  const auto file = file_in(folder);
  file->take(int64_t{8} << 20);
  struct stat status{};
  ASSERT_EQ(::fstat(descriptor_of_scratch(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, int64_t{8} << 20);
}

TEST(ScratchFile, HasTensorsThatSeeWritesAndKeepTheFile) {
  const test::Scratch folder;
  at::Tensor tensor;
  {
    const auto file = file_in(folder);
    const int64_t begin = file->take(24);
    tensor = file->tensor(begin, {2, 3}, {1, 2}, at::kFloat);  // column by column
    const std::vector<float> values = {1, 2, 3, 4, 5, 6};
    file->write(begin, std::as_bytes(std::span(values)));
    EXPECT_EQ(scratch_place(tensor.const_data_ptr())->begin, begin);
  }
  EXPECT_EQ(tensor[1][2].item<float>(), 6);
  EXPECT_EQ(tensor[0][1].item<float>(), 3);
  tensor.fill_(9);
  const auto place = scratch_place(tensor.const_data_ptr());
  ASSERT_TRUE(place);
  float value = 0;
  place->file->read(place->begin + 8, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, 9);
  EXPECT_FALSE(scratch_place(&value));
}

TEST(ScratchFile, DropsBytesThatWereTakenOneAfterAnother) {
  const test::Scratch folder;
  const auto file = ScratchFile::create({.folder = folder.path(), .allow_tmpfs = true});
  const int64_t one = file->take(4096), two = file->take(8192);
  ASSERT_EQ(two, one + 4096);
  const at::Tensor first = file->tensor(one, {1024}, {1}, at::kFloat);
  const at::Tensor second = file->tensor(two, {2048}, {1}, at::kFloat);
  first.fill_(1);
  second.fill_(2);
  file->drop(one, 4096 + 8192);
  EXPECT_EQ(first.sum().item<double>(), 1024);
  EXPECT_EQ(second.sum().item<double>(), 4096);
}

TEST(ScratchFile, HasNoNameAndVanishesWithItsProcess) {
  const test::Scratch folder;
  struct statvfs within{}, after{};
  const pid_t child = test::start_child([&] {
    const auto file = file_in(folder);
    const int64_t begin = file->take(int64_t{64} << 20);
    file->write(begin, as_bytes("x"));
    ::raise(SIGSTOP);
    return 0;
  });
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  ::statvfs(folder.str().c_str(), &within);
  EXPECT_THAT(test::names_in(folder.path()), IsEmpty());
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  ::statvfs(folder.str().c_str(), &after);
  EXPECT_THAT(test::names_in(folder.path()), IsEmpty());
  const auto bytes = [](const struct statvfs& of) {
    return static_cast<int64_t>(of.f_bfree * of.f_frsize);
  };
  // Other processes write to the disk too, but hardly 32 MB in this time.
  EXPECT_GT(bytes(after) - bytes(within), int64_t{32} << 20);
}

TEST(ScratchFile, OfTwoProcessesDoNotMeet) {
  const test::Scratch folder;
  const auto file = file_in(folder);
  const int64_t begin = file->take(100);
  file->write(begin, as_bytes("parent"));
  EXPECT_EQ(0, test::run_child([&] {
              const auto own = file_in(folder);
              const int64_t place = own->take(100);
              const bool is_empty = text_at(*own, place, 6) == std::string(6, '\0');
              own->write(place, as_bytes("child!"));
              return is_empty && text_at(*own, place, 6) == "child!" ? 0 : 1;
            }));
  EXPECT_EQ(text_at(*file, begin, 6), "parent");
}

TEST(ScratchFile, IsUnlinkedAtOnceWhereAFileNeedsAName) {
  const test::Scratch folder;
  const posix::Descriptor first = create_unlinked(folder.path());
  const posix::Descriptor second = create_unlinked(folder.path());
  ASSERT_TRUE(first && second);
  EXPECT_THAT(test::names_in(folder.path()), IsEmpty());
  EXPECT_EQ(::pwrite(first.number(), "a", 1, 0), 1);
  EXPECT_EQ(::lseek(second.number(), 0, SEEK_END), 0);
  EXPECT_FALSE(create_unlinked(folder / "missing"));
}

TEST(ScratchFile, IsRefusedInAFolderThatIsMissingOrInMemory) {
  const test::Scratch folder;
  EXPECT_THAT(error_of([&] { ScratchFile::create({.folder = folder / "missing"}); }),
              AllOf(StartsWith("files.scratch: cannot make a scratch file in "),
                    HasSubstr("missing: no such file or directory")));
  const int code = test::run_child([&] {
    if (!test::mount_small_disk(folder.str(), 1 << 20)) return test::kSkipped;
    const std::string error = error_of([&] { ScratchFile::create({.folder = folder.path()}); });
    const bool is_named = error.starts_with("files.scratch.tmpfs: ") &&
                          error.find("is a tmpfs") != std::string::npos &&
                          error.find("--offload-folder") != std::string::npos;
    ScratchFile::create({.folder = folder.path(), .allow_tmpfs = true})->take(100);
    return is_named ? 0 : 1;
  });
  if (code == test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

TEST(ScratchFile, OnAFullDiskIsAnErrorWhenItsSpaceIsTaken) {
  const test::Scratch folder;
  const int code = test::run_child([&] {
    if (!test::mount_small_disk(folder.str(), 1 << 20)) return test::kSkipped;
    const auto file = file_in(folder);
    const int64_t begin = file->take(1 << 19);
    const std::string error = error_of([&] { file->take(1 << 20); });
    const bool is_it =
        error.starts_with("files.scratch: cannot take 1048576 bytes for a scratch file") &&
        error.find("no space left on device; free some space") != std::string::npos;
    file->write(begin, as_bytes("still there"));
    return is_it && text_at(*file, begin, 11) == "still there" ? 0 : 1;
  });
  if (code == test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

TEST(ScratchFile, LargerThanTheLimitOfFilesIsAnError) {
  const test::Scratch folder;
  EXPECT_EQ(0, test::run_child([&] {
              test::limit_files(100'000);
              const auto file = file_in(folder);
              const std::string error = error_of([&] { file->take(200'000); });
              return error.find("file too large; raise the limit") == std::string::npos ? 1 : 0;
            }));
}

// A mapping would give a signal here.
TEST(ScratchFile, WhoseBytesAreGoneIsAnErrorAndNoSignal) {
  const test::Scratch folder;
  const auto file = file_in(folder);
  const int64_t begin = file->take(kBlock);
  ASSERT_EQ(::ftruncate(descriptor_of_scratch(), 0), 0);
  EXPECT_THAT(error_of([&] { text_at(*file, begin, 10); }),
              AllOf(StartsWith("files.scratch: cannot read the scratch file in "),
                    HasSubstr("at byte 0: input/output error; check the disk")));
  EXPECT_THAT(error_of([&] { file->populate(begin, 10, /*to_write=*/false); }),
              StartsWith("files.scratch: "));
  Swapper swapper(file, 4 * kBlock);
  EXPECT_THAT(error_of([&] { swapper.lease(block(0)); }), StartsWith("files.scratch: cannot read"));
  EXPECT_THAT(error_of([&] { swapper.wait(); }), StartsWith("files.scratch: cannot read"))
      << "it is an error from then on";
}

TEST(ScratchFile, WhoseDiskFillsUpBehindItIsAnErrorOfTheNextCalls) {
  const test::Scratch folder;
  const int code = test::run_child([&] {
    if (!test::mount_small_disk(folder.str(), 1 << 20)) return test::kSkipped;
    const auto file = file_in(folder);
    const int64_t begin = file->take(1 << 19);
    ::fallocate(descriptor_of_scratch(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 19);
    const auto other = file_in(folder);
    other->take((1 << 20) - (1 << 16));
    Swapper swapper(file, 1 << 19);
    Swapper::Lease lease = swapper.lease({{begin, begin + (1 << 19)}});
    lease.write_back();
    const std::string error = error_of([&] { swapper.wait(); });
    return error.starts_with("files.scratch: cannot write the scratch file in ") &&
                   error.find("no space left on device") != std::string::npos
               ? 0
               : 1;
  });
  if (code == test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

TEST(Swapper, WritesBackWhatLeasesChangedInAnyOrder) {
  constexpr int64_t kBlocks = 40;
  const test::Scratch folder;
  const auto file = file_in(folder);
  file->take(kBlocks * kBlock);
  Swapper swapper(file, 4 * kBlock);
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed)
  std::vector<int> expected(kBlocks, 0);
  for (int pass = 0; pass < 6; ++pass) {
    std::vector<int64_t> order(kBlocks);
    std::iota(order.begin(), order.end(), 0);
    if (pass > 0) std::ranges::shuffle(order, random);
    for (size_t i = 0; i < order.size(); ++i) {
      for (size_t next = i; next < std::min(i + 3, order.size()); ++next) {
        swapper.read_ahead(block(order[next]));
      }
      Swapper::Lease lease = swapper.lease(block(order[i]));
      const std::span<std::byte> bytes = lease.bytes(0);
      ASSERT_EQ(std::ssize(bytes), kBlock);
      const auto value = static_cast<std::byte>(expected[static_cast<size_t>(order[i])]);
      ASSERT_TRUE(std::ranges::all_of(bytes, [&](std::byte byte) { return byte == value; }));
      const bool changes = random() % 4 != 0;
      std::ranges::fill(bytes, static_cast<std::byte>(pass + 1));
      if (!changes) continue;  // the lease ends, and what it wrote is forgotten
      expected[static_cast<size_t>(order[i])] = pass + 1;
      lease.write_back();
    }
  }
  swapper.wait();
  for (int64_t i = 0; i < kBlocks; ++i) {
    const auto value = static_cast<char>(expected[static_cast<size_t>(i)]);
    EXPECT_EQ(text_at(*file, i * kBlock, 3), std::string(3, value));
    EXPECT_EQ(text_at(*file, (i + 1) * kBlock - 3, 3), std::string(3, value));
  }
}

TEST(Swapper, LeasesSeveralRangesAtOnceEachAtALineOfItsOwn) {
  const test::Scratch folder;
  const auto file = file_in(folder);
  file->take(1000);
  file->write(0, as_bytes("first"));
  file->write(500, as_bytes("second"));
  Swapper swapper(file, 1024);
  Swapper::Lease lease = swapper.lease({{0, 5}, {500, 506}, {700, 700}});
  EXPECT_EQ(text_in(lease.bytes(0)), "first");
  EXPECT_EQ(text_in(lease.bytes(1)), "second");
  EXPECT_TRUE(lease.bytes(2).empty());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(lease.bytes(1).data()) % 64, 0U);
}

TEST(Swapper, HoldsSeveralLeasesWithinItsMemory) {
  const test::Scratch folder;
  const auto file = file_in(folder);
  file->take(10 * kBlock);
  Swapper swapper(file, 3 * kBlock + 192);
  swapper.read_ahead(block(8));
  swapper.read_ahead(block(9));
  Swapper::Lease first = swapper.lease(block(0));
  {
    const Swapper::Lease second = swapper.lease(block(1)), third = swapper.lease(block(2));
    EXPECT_NE(second.bytes(0).data(), third.bytes(0).data());
    EXPECT_THAT(error_of([&] { swapper.lease(block(3)); }),
                AllOf(StartsWith("files.scratch.memory: "), HasSubstr("beside 3 leases"),
                      HasSubstr("--offload-memory-mb")));
  }
  const Swapper::Lease fourth = swapper.lease(block(3));
  EXPECT_THAT(error_of([&] { swapper.lease({{0, 4 * kBlock}}); }),
              AllOf(StartsWith("files.scratch.memory: "), HasSubstr("400000 bytes are needed")));
}

TEST(Swapper, ReadsAheadAndForgetsWhenItIsTold) {
  const test::Scratch folder;
  const auto file = file_in(folder);
  file->take(4 * kBlock);
  Swapper swapper(file, 4 * kBlock);
  swapper.read_ahead(block(1));
  swapper.read_ahead(block(1));
  while (file->bytes_read() < kBlock) ::usleep(1000);
  file->write(kBlock, as_bytes("new"));
  EXPECT_EQ(text_in(swapper.lease(block(1)).bytes(0).first(3)), std::string(3, '\0'))
      << "it was read ahead";
  EXPECT_EQ(file->bytes_read(), kBlock) << "once";
  swapper.read_ahead(block(1));
  swapper.forget();
  EXPECT_EQ(text_in(swapper.lease(block(1)).bytes(0).first(3)), "new");
}

TEST(Swapper, ReadsAgainWhatOtherRangesHaveWritten) {
  const test::Scratch folder;
  const auto file = file_in(folder);
  file->take(4 * kBlock);
  Swapper swapper(file, 4 * kBlock);
  const ByteRanges both = {{0, 2 * kBlock}};
  swapper.read_ahead(both);
  while (file->bytes_read() < 2 * kBlock) ::usleep(1000);
  Swapper::Lease lease = swapper.lease(block(1));
  std::memcpy(lease.bytes(0).data(), "new", 3);
  lease.write_back();
  EXPECT_EQ(text_in(swapper.lease(both).bytes(0).subspan(kBlock, 3)), "new");
}

TEST(Swapper, KeepsThePagesOfItsFileOutOfTheCache) {
  const test::Scratch folder;
  const auto file = file_in(folder);
  constexpr int64_t kUnit = int64_t{4} << 20, kUnits = 16;
  const int64_t begin = file->take(kUnits * kUnit);
  const at::Tensor mapped = file->tensor(begin, {kUnits * kUnit}, {1}, at::kByte);
  {
    Swapper swapper(file, 3 * kUnit);
    for (int64_t i = 0; i < kUnits; ++i) {
      Swapper::Lease lease = swapper.lease({{i * kUnit, (i + 1) * kUnit}});
      std::memset(lease.bytes(0).data(), static_cast<int>(i), kUnit);
      lease.write_back();
    }
    swapper.wait();
  }
  std::vector<unsigned char> in_core(static_cast<size_t>(kUnits * kUnit / 4096));
  ASSERT_EQ(::mincore(mapped.data_ptr(), static_cast<size_t>(kUnits * kUnit), in_core.data()), 0);
  const auto cached = std::ranges::count_if(in_core, [](unsigned char page) { return page & 1; });
  if (is_in_memory(folder.path())) GTEST_SKIP() << "the folder of tests is a tmpfs";
  EXPECT_LE(cached * 4096, 2 * kUnit) << "the last write is still there";
  EXPECT_EQ(mapped[5 * kUnit].item<uint8_t>(), 5);
}

}  // namespace
}  // namespace scratch_files
}  // namespace levin::files
