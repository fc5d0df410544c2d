#include "levin/files/scratch/scratch_file.h"

#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "levin/base/check.h"
#include "levin/files/writing/output.h"

// Linux 5.14 has these; headers of the C library may lack them.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace levin::files {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kTensorAlignment = 64;
constexpr int64_t kPage = 4096;

int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// The scratch mappings of this process.
struct ScratchMaps {
  std::mutex mutex;
  struct Map {
    int64_t size = 0;
    int64_t begin = 0;
    ScratchFile* file = nullptr;
  };
  std::map<const std::byte*, Map> by_address;

  static ScratchMaps& instance() {
    static ScratchMaps& maps = *new ScratchMaps;  // files may end after static objects have gone
    return maps;
  }
};

bool lies_in_memory(int file) {
  constexpr int64_t kRamfsMagic = 0x858458f6;
  struct statfs status{};
  return ::fstatfs(file, &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || static_cast<int64_t>(status.f_type) == kRamfsMagic);
}

}  // namespace

std::shared_ptr<ScratchFile> ScratchFile::create(const ScratchOptions& options) {
  posix::Descriptor file = create_without_name(options.folder);
  LEVIN_CHECK(file, "files.scratch", "cannot make a scratch file in {}: {}",
              options.folder.string(), posix::reason(errno));
  LEVIN_CHECK(
      options.allow_tmpfs || !lies_in_memory(file.number()), "files.scratch.tmpfs",
      "got the scratch folder {}, which is a tmpfs: its files take memory, which offload is to "
      "save; name a folder on a disk (--offload-folder), or set --offload-tmpfs",
      options.folder.string());
  return std::shared_ptr<ScratchFile>(new ScratchFile(options.folder, std::move(file)));
}

ScratchFile::ScratchFile(fs::path folder, posix::Descriptor file)
    : folder_(std::move(folder)), file_(std::move(file)) {}

ScratchFile::~ScratchFile() {
  const std::lock_guard lock(ScratchMaps::instance().mutex);
  for (const Region& region : regions_) {
    ScratchMaps::instance().by_address.erase(region.address);
    ::munmap(region.address, static_cast<size_t>(region.size));
  }
}

int64_t ScratchFile::size() const {
  const std::lock_guard lock(mutex_);
  return size_;
}

int64_t ScratchFile::take(int64_t bytes) {
  TORCH_INTERNAL_ASSERT(bytes >= 0, "bytes of scratch below 0");
  const std::lock_guard lock(mutex_);
  const int64_t begin = size_;
  if (bytes == 0) return begin;
  const int64_t size = rounded_up(bytes, kPage);  // a mapping begins at a page
  int error = 0;
  do {
    error = ::posix_fallocate(file_.number(), begin, size);
  } while (error == EINTR);
  LEVIN_CHECK(error == 0, "files.scratch", "cannot take {} bytes for a scratch file in {}: {}",
              size, folder_.string(), posix::reason(error));
  void* address = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED,
                         file_.number(), begin);
  LEVIN_CHECK(address != MAP_FAILED, "files.scratch",
              "cannot map {} bytes of a scratch file in {}: {}", size, folder_.string(),
              posix::reason(errno));
  regions_.push_back({begin, size, static_cast<std::byte*>(address)});
  size_ += size;
  const std::lock_guard maps(ScratchMaps::instance().mutex);
  ScratchMaps::instance().by_address[regions_.back().address] = {size, begin, this};
  return begin;
}

std::byte* ScratchFile::address_of(int64_t begin, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  for (const Region& region : regions_) {
    const bool is_in = begin >= region.begin && begin + bytes <= region.begin + region.size;
    if (is_in) return region.address + (begin - region.begin);
  }
  TORCH_INTERNAL_ASSERT(bytes == 0, "bytes of scratch that were not taken together");
  return nullptr;
}

at::Tensor ScratchFile::tensor(int64_t begin, at::IntArrayRef sizes, at::IntArrayRef strides,
                               at::ScalarType type) {
  int64_t elements = 1;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    elements = sizes[dim] == 0 ? 0 : elements;
    if (elements > 0) elements += (sizes[dim] - 1) * strides[dim];
  }
  const int64_t bytes = elements * static_cast<int64_t>(c10::elementSize(type));
  std::byte* address = address_of(begin, bytes);
  return at::from_blob(
      address, sizes, strides, [file = shared_from_this()](void*) {}, at::TensorOptions(type));
}

void ScratchFile::read(int64_t begin, std::span<std::byte> to) {
  size_t done = 0;
  while (done < to.size()) {
    const int64_t at = begin + static_cast<int64_t>(done);
    const ssize_t count = ::pread(file_.number(), to.data() + done, to.size() - done, at);
    if (count < 0 && errno == EINTR) continue;
    LEVIN_CHECK(count > 0, "files.scratch", "cannot read the scratch file in {} at byte {}: {}",
                folder_.string(), at, posix::reason(count < 0 ? errno : EIO));
    done += static_cast<size_t>(count);
  }
  bytes_read_ += std::ssize(to);
  ::posix_fadvise(file_.number(), begin, std::ssize(to), POSIX_FADV_DONTNEED);
}

void ScratchFile::write(int64_t begin, std::span<const std::byte> from) {
  size_t done = 0;
  while (done < from.size()) {
    const int64_t at = begin + static_cast<int64_t>(done);
    const ssize_t count = ::pwrite(file_.number(), from.data() + done, from.size() - done, at);
    if (count < 0 && errno == EINTR) continue;
    LEVIN_CHECK(count > 0, "files.scratch", "cannot write the scratch file in {} at byte {}: {}",
                folder_.string(), at, posix::reason(count < 0 ? errno : EIO));
    done += static_cast<size_t>(count);
  }
  bytes_written_ += std::ssize(from);
  ::sync_file_range(file_.number(), begin, std::ssize(from), SYNC_FILE_RANGE_WRITE);
}

void ScratchFile::will_need(int64_t begin, int64_t bytes) {
  ::posix_fadvise(file_.number(), begin, bytes, POSIX_FADV_WILLNEED);
}

void ScratchFile::drop(int64_t begin, int64_t bytes) {
  if (bytes == 0) return;
  constexpr unsigned kAll =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const bool is_written = ::sync_file_range(file_.number(), begin, bytes, kAll) == 0 ||
                          errno == ENOSYS || errno == EOPNOTSUPP;
  LEVIN_CHECK(is_written, "files.scratch", "cannot write the scratch file in {} at byte {}: {}",
              folder_.string(), begin, posix::reason(errno));
  drop_mapping(begin, begin + bytes);
  ::posix_fadvise(file_.number(), begin, bytes, POSIX_FADV_DONTNEED);
}

/// Whole pages of the mappings; those at the ends may have neighbours that are in use. Bytes that are dropped
/// together may have been taken one after another.
void ScratchFile::drop_mapping(int64_t begin, int64_t end) {
  const std::lock_guard lock(mutex_);
  for (const Region& region : regions_) {
    const int64_t from = std::max(rounded_up(begin, kPage), region.begin);
    const int64_t to = std::min(end / kPage * kPage, region.begin + region.size);
    if (to <= from) continue;
    ::madvise(region.address + (from - region.begin), static_cast<size_t>(to - from),
              MADV_DONTNEED);
  }
}

void ScratchFile::populate(int64_t begin, int64_t bytes, bool to_write) {
  if (bytes == 0) return;
  const int64_t before = begin % kPage;  // regions begin at pages of the file
  std::byte* const first = address_of(begin, bytes) - before;
  const int64_t size = rounded_up(before + bytes, kPage);
  const int advice = to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  const bool is_there = ::madvise(first, static_cast<size_t>(size), advice) == 0;
  const int error = errno == EFAULT ? EIO : errno;  // EFAULT where a touch would be a SIGBUS
  LEVIN_CHECK(is_there || error == EINVAL, "files.scratch",
              "cannot read the scratch file in {} at byte {}: {}", folder_.string(), begin,
              posix::reason(error));
}

std::optional<ScratchPlace> scratch_place(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const std::lock_guard lock(ScratchMaps::instance().mutex);
  const auto& maps = ScratchMaps::instance().by_address;
  const auto next = maps.upper_bound(byte);
  if (next == maps.begin()) return std::nullopt;
  const auto& [first, map] = *std::prev(next);
  const int64_t offset = byte - first;
  if (offset >= map.size) return std::nullopt;
  auto file = map.file->weak_from_this().lock();
  if (file == nullptr) return std::nullopt;
  return ScratchPlace{std::move(file), map.begin + offset};
}

static_assert(kPage % kTensorAlignment == 0);

}  // namespace levin::files
