#pragma once
// MappedPieces: a file of a checkpoint in memory, whose pieces are checked when they are touched.
// Not for users.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "levin/checkpoint/manifest_impl.h"
#include "levin/files/safetensors.h"

namespace levin::detail {

class MappedPieces {
 public:
  /// Throws Error "checkpoint.corrupt" for a file that is missing, a link, or of another size than
  /// is listed.
  MappedPieces(std::filesystem::path path, ListedFile listed, const std::optional<Part>& part);

  /// Checks the pieces that contain these bytes of the file. Throws Error "checkpoint.corrupt", and
  /// "checkpoint.part" for pieces that another host has.
  void check(int64_t begin, int64_t end);
  void check_all() { check(0, listed_.size); }
  /// These bytes, checked.
  std::span<const std::byte> bytes(int64_t begin, int64_t end);
  /// The full file's bytes, checked.
  std::string_view text();
  /// Its tensors; the header is checked, the data is not.
  const files::SafetensorsFile& tensors();
  /// Checks the bytes of rows of a tensor of it.
  void check_rows(const files::TensorEntry& tensor, int64_t begin, int64_t end);

  int64_t bytes_checked() const { return bytes_checked_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  ListedFile listed_;
  std::optional<Part> part_;
  std::optional<files::MemoryMap> map_;            // until it is that of tensors_
  std::optional<files::SafetensorsFile> tensors_;  // of a file of tensors, once asked for
  std::span<const std::byte> bytes_;
  std::vector<bool> checked_;
  int64_t bytes_checked_ = 0;
};

}  // namespace levin::detail
