#pragma once
// FileWriter: writes one file front to back and knows its checksum when it is done.
// Every format of this room is written through it; a checkpoint's manifest keeps the digests.
//
//   FileWriter file("model.bin");
//   file.write(header);
//   file.write(std::as_bytes(std::span(weights)));
//   const FileDigest written = file.close();           // on the disk now
//   assert(digest("model.bin") == written);

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "levin/base/export.h"

namespace levin::files {

/// A digest of a file's contents: any flipped bit changes xxh3 (XXH3, 64 bits, seed 0).
struct FileDigest {
  int64_t size = 0;  ///< bytes
  uint64_t xxh3 = 0;

  bool operator==(const FileDigest&) const = default;
};

/// Every failure throws Error "files.write" that names the path, the bytes that reached the file
/// and the system's reason; after one, nothing more is written and every call throws.
class LEVIN_API FileWriter {
 public:
  /// Creates the file, or empties the one there is: a staged one, or one of the program's own. Never by
  /// a link.
  explicit FileWriter(const std::filesystem::path& path);
  /// Without close() before, the file is discarded: neither flushed nor synced.
  ~FileWriter();
  FileWriter(FileWriter&&) noexcept;
  FileWriter& operator=(FileWriter&&) noexcept;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Hands what is buffered to the system, so that readers see it and it outlives this process.
  void flush();
  /// Bytes given to write() so far.
  int64_t size() const;
  /// Flushes, waits until the disk has it (fsync) and closes.
  FileDigest close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The digest of a file on disk. Throws Error "files.read" with path and reason.
LEVIN_API FileDigest digest(const std::filesystem::path& path);

}  // namespace levin::files
