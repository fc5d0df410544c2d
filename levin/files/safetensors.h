#pragma once
// Safetensors: named tensors in one file, as Hugging Face's library writes and reads them.
// How weights leave and enter levin; checkpoint/ makes LibTorch's tensors of the entries.
//
//   write_safetensors("model.safetensors", std::vector<TensorEntry>{
//       {"weight", "F32", {2, 3}, std::as_bytes(std::span(values))}}, {{"format", "pt"}});
//   const SafetensorsFile file("model.safetensors");
//   const TensorEntry* weight = file.find("weight");

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/files/file_writer.h"
#include "levin/files/memory_map.h"
#include "levin/files/safetensors/layout.h"

namespace levin::files {

/// One tensor, by view of its elements: row-major, little-endian.
struct TensorEntry {
  std::string name;  ///< UTF-8; anything but "__metadata__"
  /// BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16,
  /// U16, F16, BF16, I32, U32, F32, C64, F64, I64 or U64
  std::string dtype;
  std::vector<int64_t> shape;  ///< {} is a scalar
  std::span<const std::byte> data;
};

/// Writes the bytes that Hugging Face's library writes for these tensors: wide dtypes first, then
/// by name, so that every tensor is aligned in the file. Synced when it returns. Throws Error
/// "files.safetensors" (two of one name, unknown dtype, data that is not of that shape) and
/// "files.write".
LEVIN_API FileDigest write_safetensors(const std::filesystem::path& path,
                                       std::span<const TensorEntry> tensors,
                                       const TensorMetadata& metadata = {});

/// A file, mapped and checked. A handle: copies share the map, and the views of its entries are
/// valid while one of them lives. Data of a file from elsewhere may lie unaligned to its dtype.
/// Throws Error "files.read" and, naming file, place and reason, "files.safetensors" for all that
/// Hugging Face's reader refuses and for names given twice or fields that the format does not have.
class LEVIN_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  /// file: what errors call it.
  SafetensorsFile(MemoryMap map, const std::string& file);

  /// In the order of their data in the file.
  const std::vector<TensorEntry>& entries() const;
  /// Nothing when there is no tensor of that name.
  const TensorEntry* find(std::string_view name) const;
  const TensorMetadata& metadata() const;

 private:
  struct Contents;
  std::shared_ptr<const Contents> contents_;
};

}  // namespace levin::files
