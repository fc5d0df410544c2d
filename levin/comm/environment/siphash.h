#pragma once
// SipHash: a hash that nobody forges or turns back without its key. Seals of launchers' words are made of
// it, and what stands of a job's token in keys that strangers can list.
// Not for users.
//
//   const std::array<uint64_t, 2> seal = siphash(siphash({}, token), text);

#include <array>
#include <cstdint>
#include <string_view>

#include "levin/base/export.h"

namespace levin::comm {

/// SipHash-2-4 with 128 bits of result (Aumasson and Bernstein, 2012).
LEVIN_API std::array<uint64_t, 2> siphash(const std::array<uint64_t, 2>& key,
                                          std::string_view text);

}  // namespace levin::comm
