#include "levin/files/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/posix.h"
#include "levin/base/reading/regular_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace levin::files {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
// The disk starts on what is written while the rest is still being made, so that the fsync at the
// end waits for little.
constexpr int64_t kWritebackBytes = int64_t{1} << 24;

}  // namespace

namespace detail {

class Checksum {
 public:
  Checksum() { XXH3_64bits_reset(&state_); }
  void update(std::span<const std::byte> bytes) {
    XXH3_64bits_update(&state_, bytes.data(), bytes.size());
  }
  uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

}  // namespace detail

struct FileWriter::Impl {
  std::filesystem::path path;
  posix::Descriptor file;
  detail::Checksum checksum;
  std::vector<std::byte> buffer;
  int64_t size = 0;       // bytes given to write()
  int64_t written = 0;    // bytes that reached the file
  int64_t writeback = 0;  // bytes among these that the disk was told to start on
  bool failed = false;

  [[noreturn]] void fail(int error) {
    failed = true;
    LEVIN_FAIL("files.write", "cannot write {} after {} bytes: {}", path.string(), written,
               posix::reason(error));
  }

  void check_usable() const {
    LEVIN_CHECK(!failed && file, "files.write", "{} was {}; open it again to write to it",
                path.string(), failed ? "abandoned after an error" : "closed");
  }

  void write_out(std::span<const std::byte> bytes) {
    const size_t count = posix::write_all(file, bytes);
    const int error = errno;
    written += static_cast<int64_t>(count);
    if (count < bytes.size()) fail(error);
    if (written - writeback < kWritebackBytes) return;
    // A hint: the fsync in close() is what reports errors.
    ::sync_file_range(file.number(), writeback, written - writeback, SYNC_FILE_RANGE_WRITE);
    writeback = written;
  }

  void flush() {
    write_out(buffer);
    buffer.clear();
  }
};

FileWriter::FileWriter(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->file = posix::open_file(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (!impl_->file) impl_->fail(errno);
  impl_->buffer.reserve(kBufferBytes);
}

FileWriter::~FileWriter() = default;
FileWriter::FileWriter(FileWriter&&) noexcept = default;
FileWriter& FileWriter::operator=(FileWriter&&) noexcept = default;

void FileWriter::write(std::span<const std::byte> bytes) {
  impl_->check_usable();
  impl_->checksum.update(bytes);
  impl_->size += static_cast<int64_t>(bytes.size());
  if (impl_->buffer.size() + bytes.size() > kBufferBytes) impl_->flush();
  if (bytes.size() >= kBufferBytes) {
    impl_->write_out(bytes);
  } else {
    impl_->buffer.insert(impl_->buffer.end(), bytes.begin(), bytes.end());
  }
}

void FileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void FileWriter::flush() {
  impl_->check_usable();
  impl_->flush();
}

int64_t FileWriter::size() const { return impl_->size; }

FileDigest FileWriter::close() {
  flush();
  if (::fsync(impl_->file.number()) != 0 || !impl_->file.close()) impl_->fail(errno);
  return {impl_->size, impl_->checksum.value()};
}

FileDigest digest(const std::filesystem::path& path) {
  std::string why;
  const auto opened = posix::open_regular(path, why);
  LEVIN_CHECK(opened, "files.read", "cannot read {}: {}", path.string(), why);
  std::vector<std::byte> buffer(kBufferBytes);
  detail::Checksum checksum;
  FileDigest result;
  for (;;) {
    const int64_t count = posix::read_some(opened->file, buffer);
    LEVIN_CHECK(count >= 0, "files.read", "cannot read {} after {} bytes: {}", path.string(),
                result.size, posix::reason(errno));
    if (count == 0) break;
    checksum.update(std::span(buffer).first(static_cast<size_t>(count)));
    result.size += count;
  }
  result.xxh3 = checksum.value();
  return result;
}

}  // namespace levin::files
