#pragma once
// SharedFile: a file that several processes write at once, each at places of its own.
// One of them makes it at its full size, all open it; how the ranks of a run write a checkpoint.
//
//   create_file("model.safetensors", layout.size());       // in one process
//   SharedFile file("model.safetensors");                  // in each of them
//   file.write_at(offset, std::as_bytes(std::span(rows)));
//   file.sync();

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "levin/base/export.h"
#include "levin/base/posix.h"

namespace levin::files {

/// When a new file takes its space on the disk: at once, or as it is written (sparse).
enum class Room { kNow, kAsWritten };

/// A new file of zeros. With Room::kNow a full disk shows here, not hours into the writing, where
/// the file system can say so (not on tmpfs, where it would cost as much as the writing). Throws
/// Error "files.write".
LEVIN_API void create_file(const std::filesystem::path& path, int64_t size, Room room = Room::kNow);

/// The same for a file that is there, and empty.
LEVIN_API void give_size(const std::filesystem::path& path, int64_t size, Room room = Room::kNow);

/// Every failure throws Error "files.write" that names the path, the place and the system's reason.
class LEVIN_API SharedFile {
 public:
  /// Opens a file that exists; not by a link.
  explicit SharedFile(std::filesystem::path path);

  /// Within the size that the file had when it was opened.
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  /// Waits until the disk has what this process wrote.
  void sync();

 private:
  std::filesystem::path path_;
  posix::Descriptor file_;
  int64_t size_ = 0;
};

}  // namespace levin::files
