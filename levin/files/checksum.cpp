#include "levin/files/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace levin::files {

uint64_t xxh3(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace levin::files
