#pragma once
// XXH3, 64 bits: the checksum of everything that levin writes and checks.
//
//   const uint64_t digest = xxh3(bytes);

#include <cstddef>
#include <cstdint>
#include <span>

#include "levin/base/export.h"

namespace levin::files {

/// Any flipped bit changes it. seed: that of what came before, for bytes that lie apart.
LEVIN_API uint64_t xxh3(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace levin::files
