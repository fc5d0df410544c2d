#pragma once
// The JSON header of a safetensors file, parsed without a tree and checked for its form alone.
// Not for users.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "levin/files/safetensors.h"

namespace levin::files::detail {

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

/// Throws Error "files.safetensors" with the file's name. json starts at byte 8 of the file.
Header parse_header(std::string_view json, const std::string& file);

}  // namespace levin::files::detail
