#pragma once
// MemoryMap: a file's bytes in memory, read only when they are touched.
// The first thing every reader of this room makes of a path.
//
//   const MemoryMap map("model.safetensors");
//   parse(map.bytes());                                // valid while map lives

#include <cstddef>
#include <filesystem>
#include <span>

#include "levin/base/export.h"

namespace levin::files {

/// The file is never written to; an empty file gives an empty span. A file that is replaced or
/// removed meanwhile stays readable here; one that is shortened in place does not (SIGBUS), so
/// write files anew instead.
class LEVIN_API MemoryMap {
 public:
  /// Throws Error "files.read" with path and reason: missing, a folder, no permission.
  explicit MemoryMap(const std::filesystem::path& path);
  ~MemoryMap();
  MemoryMap(MemoryMap&& other) noexcept;
  MemoryMap& operator=(MemoryMap&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// Returns whether the address lies in a MemoryMap of this process that exists now. All processes
/// that map the file share its pages, which cost nothing of their own.
LEVIN_API bool is_mapped(const void* address);

}  // namespace levin::files
