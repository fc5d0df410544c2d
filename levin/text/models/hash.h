#pragma once
// A hash of short texts for tables in memory: the same in a run, and of no other use. Not for users.

#include <cstdint>
#include <cstring>
#include <string_view>

namespace levin::text {

inline uint64_t mix(uint64_t a, uint64_t b) {
  const auto product =
      static_cast<unsigned __int128>(a ^ 0x9e3779b97f4a7c15U) * (b ^ 0xd1b54a32d192ed03U);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_of(std::string_view text) {
  const char* at = text.data();
  size_t left = text.size();
  uint64_t hash = left;
  const auto word = [](const char* from, size_t size) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, from, size);
    return bytes;
  };
  while (left > 16) {
    hash = mix(hash ^ word(at, 8), word(at + 8, 8));
    at += 16;
    left -= 16;
  }
  if (left >= 8) return mix(hash ^ word(at, 8), word(at + left - 8, 8) + 1);
  if (left >= 4) return mix(hash ^ word(at, 4), word(at + left - 4, 4) + 2);
  uint64_t few = 0;
  if (left > 0) {
    few = static_cast<uint8_t>(at[0]) |
          static_cast<uint64_t>(static_cast<uint8_t>(at[left / 2])) << 8 |
          static_cast<uint64_t>(static_cast<uint8_t>(at[left - 1])) << 16;
  }
  return mix(hash, few + 3);
}

}  // namespace levin::text
