#pragma once
// IDX: one array in a file, gzipped or not, the format of MNIST and its family (LeCun et al. 1998).
// Images and labels come from it; data/ makes a tensor of the array.
//
//   const IdxArray labels = read_idx("t10k-labels-idx1-ubyte.gz");
//   assert(labels.type == IdxType::kU8 && labels.shape == std::vector<int64_t>{10000});

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "levin/base/export.h"

namespace levin::files {

/// Values as in the file's third byte.
enum class IdxType : uint8_t {
  kU8 = 0x08,
  kI8 = 0x09,
  kI16 = 0x0B,
  kI32 = 0x0C,
  kF32 = 0x0D,
  kF64 = 0x0E,
};

struct IdxArray {
  IdxType type = IdxType::kU8;
  std::vector<int64_t> shape;   ///< 1 to 8 dims
  std::vector<std::byte> data;  ///< row-major, in this machine's byte order
};

/// Reads the whole file. Memory grows with the data that is there, not with what the header says.
/// Throws Error "files.read" and, naming file, offset (in the unpacked data) and reason,
/// "files.idx": no IDX file, truncated, longer than its shape, damaged (gzip's checksum).
LEVIN_API IdxArray read_idx(const std::filesystem::path& path);

}  // namespace levin::files
