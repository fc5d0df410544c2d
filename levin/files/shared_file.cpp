#include "levin/files/shared_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "levin/base/check.h"

namespace levin::files {
namespace {

/// Returns whether the error means that the file system cannot reserve space.
bool is_unsupported(int error) { return error == EOPNOTSUPP || error == ENOSYS || error == EINVAL; }

/// fallocate there fills pages with zeros, which are then written once more.
bool is_in_memory(const posix::Descriptor& file) {
  struct statfs status{};
  return ::fstatfs(file.number(), &status) == 0 && status.f_type == TMPFS_MAGIC;
}

/// False with errno set. Not posix_fallocate, which writes a byte of every block where the file
/// system cannot do it.
bool take_room(const posix::Descriptor& file, int64_t size) {
  int result = -1;
  do {
    result = ::fallocate(file.number(), 0, 0, size);
  } while (result != 0 && errno == EINTR);
  return result == 0 || is_unsupported(errno);
}

void make(const std::filesystem::path& path, int flags, int64_t size, Room room) {
  const posix::Descriptor file = posix::open_file(path, O_WRONLY | O_NOFOLLOW | flags);
  const bool takes_room = room == Room::kNow && size > 0 && file && !is_in_memory(file);
  const bool is_made =
      file && ::ftruncate(file.number(), size) == 0 && (!takes_room || take_room(file, size));
  LEVIN_CHECK(is_made, "files.write", "cannot make {} of {} bytes: {}", path.string(), size,
              posix::reason(errno));
}

}  // namespace

void create_file(const std::filesystem::path& path, int64_t size, Room room) {
  make(path, O_CREAT | O_EXCL, size, room);
}

void give_size(const std::filesystem::path& path, int64_t size, Room room) {
  make(path, 0, size, room);
}

SharedFile::SharedFile(std::filesystem::path path)
    : path_(std::move(path)), file_(posix::open_file(path_, O_WRONLY | O_NOFOLLOW)) {
  struct stat status{};
  LEVIN_CHECK(file_ && ::fstat(file_.number(), &status) == 0, "files.write", "cannot open {}: {}",
              path_.string(), posix::reason(errno));
  size_ = status.st_size;
}

void SharedFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  LEVIN_CHECK(offset >= 0 && offset <= size_ && std::ssize(bytes) <= size_ - offset, "files.write",
              "cannot write {} bytes at byte {} of {}: it has {} bytes", bytes.size(), offset,
              path_.string(), size_);
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = ::pwrite(file_.number(), bytes.data() + written, bytes.size() - written,
                                   offset + static_cast<int64_t>(written));
    if (count < 0 && errno == EINTR) continue;
    LEVIN_CHECK(count > 0, "files.write", "cannot write {} at byte {}: {}", path_.string(),
                offset + static_cast<int64_t>(written), posix::reason(count < 0 ? errno : EIO));
    written += static_cast<size_t>(count);
  }
  // A hint, so that the disk starts while the rest is made: sync() is what reports errors.
  ::sync_file_range(file_.number(), offset, std::ssize(bytes), SYNC_FILE_RANGE_WRITE);
}

void SharedFile::sync() {
  LEVIN_CHECK(::fsync(file_.number()) == 0, "files.write", "cannot write {}: {}", path_.string(),
              posix::reason(errno));
}

}  // namespace levin::files
