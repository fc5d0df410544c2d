#pragma once
// ScratchFile: a file without a name, for tensors that do not fit into memory. The optimizer's state lies in one
// under --offload. Not for users.
//
//   auto file = ScratchFile::create({.folder = "/mnt/nvme"});
//   const int64_t begin = file->take(bytes);                    // zeros, on the disk
//   at::Tensor momentum = file->tensor(begin, {n}, at::kFloat); // readable at any time
//   file->read(begin, buffer);   file->write(begin, buffer);    // errors, where the mapping has signals

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/posix.h"

namespace levin::files {

struct ScratchOptions {
  std::filesystem::path folder = {};
  bool allow_tmpfs = false;  ///< a file of a tmpfs takes memory, so that it is refused else
};

/// The place of a tensor's memory in a scratch file.
struct ScratchPlace;

/// The file has no name (O_TMPFILE), so it vanishes when the process ends, also by kill -9, and no two processes
/// meet in it. read() and write() go through the page cache and take the pages out of it again, so that the
/// process's share of memory is its buffers. Several threads may call the functions.
class LEVIN_API ScratchFile : public std::enable_shared_from_this<ScratchFile> {
 public:
  /// Throws Error "files.scratch.tmpfs" for a folder in memory, and "files.scratch" for one that is missing or not
  /// writable.
  static std::shared_ptr<ScratchFile> create(const ScratchOptions& options);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  /// Returns the first of that many bytes, zeros, at a multiple of 64. The space is taken on the disk now, so that
  /// a full disk is an error here and not in a later write. Throws Error "files.scratch".
  int64_t take(int64_t bytes);
  /// Returns a tensor over bytes that were taken together. Its memory is the file's, mapped: it may be read and
  /// written like any other, but an I/O error is a SIGBUS there. The tensor keeps the file.
  at::Tensor tensor(int64_t begin, at::IntArrayRef sizes, at::IntArrayRef strides,
                    at::ScalarType type);

  /// Reads or writes bytes that were taken. The write has reached the page cache when it returns, and the disk has
  /// begun with it. Throws Error "files.scratch" with the system's reason.
  void read(int64_t begin, std::span<std::byte> to);
  void write(int64_t begin, std::span<const std::byte> from);
  /// The disk begins to read these bytes.
  void will_need(int64_t begin, int64_t bytes);
  /// Waits until the disk has these bytes, and takes their pages out of memory, also those of the mapping. Throws
  /// Error "files.scratch".
  void drop(int64_t begin, int64_t bytes);
  /// Makes sure that the mapping of these bytes can be read, or written, without a signal. Throws Error
  /// "files.scratch" for an I/O error.
  void populate(int64_t begin, int64_t bytes, bool to_write);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t size() const;  ///< bytes taken
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bytes_written() const { return bytes_written_; }

 private:
  /// Bytes that were taken together, and their mapping.
  struct Region {
    int64_t begin = 0;
    int64_t size = 0;
    std::byte* address = nullptr;
  };

  ScratchFile(std::filesystem::path folder, posix::Descriptor file);
  std::byte* address_of(int64_t begin, int64_t bytes) const;
  void drop_mapping(int64_t begin, int64_t end);
  friend LEVIN_API std::optional<ScratchPlace> scratch_place(const void* address);

  std::filesystem::path folder_;
  posix::Descriptor file_;
  mutable std::mutex mutex_;
  std::vector<Region> regions_;
  int64_t size_ = 0;
  std::atomic<int64_t> bytes_read_ = 0;
  std::atomic<int64_t> bytes_written_ = 0;
};

struct ScratchPlace {
  std::shared_ptr<ScratchFile> file;
  int64_t begin = 0;
};

/// Returns the place of memory that ScratchFile::tensor gave; nothing for other memory.
LEVIN_API std::optional<ScratchPlace> scratch_place(const void* address);

}  // namespace levin::files
