#pragma once
// The JSON header of a safetensors file, parsed without a tree and checked for its form alone.
// Not for users.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/files/safetensors/layout.h"

namespace levin::files::detail {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as Hugging Face's reader

/// One tensor as the header has it; the offsets are not checked yet.
struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;  ///< none negative
  uint64_t begin = 0;          ///< in the data after the header
  uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;
  TensorMetadata metadata;
};

/// Bytes of a tensor of that dtype and shape. Throws Error "files.safetensors" for an unknown dtype
/// and for a shape that is negative or leaves 64 bits.
int64_t tensor_bytes(const std::string& file, const std::string& name,
                     const std::string& dtype_name, const std::vector<int64_t>& shape);

/// The JSON of a file's header, its length checked against the bytes that there are. Throws Error
/// "files.safetensors".
std::string_view header_text(std::span<const std::byte> bytes, const std::string& file);

/// Throws Error "files.safetensors" with the file's name. json starts at byte 8 of the file.
Header parse_header(std::string_view json, const std::string& file);

}  // namespace levin::files::detail
