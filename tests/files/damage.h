#pragma once
// Every way to cut a file short, to flip one of its bits, and many random ways to change it: a
// fuzzer whose run is the same each time.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>

#include "levin/base/error.h"

namespace levin::files::testing {

/// Reads damaged bytes and throws levin::Error, or returns whether what it read can be used.
using Reading = std::function<bool(const std::string& bytes)>;

struct DamageCount {
  int64_t refused = 0;
  int64_t taken = 0;
};

inline void read_damaged(const Reading& reading, const std::string& bytes, const std::string& what,
                         DamageCount& count) {
  try {
    EXPECT_TRUE(reading(bytes)) << what;
    ++count.taken;
  } catch (const Error&) {
    ++count.refused;
  }
}

inline DamageCount truncate_everywhere(const std::string& whole, const Reading& reading) {
  DamageCount count;
  for (size_t length = 0; length < whole.size(); ++length) {
    read_damaged(reading, whole.substr(0, length), "cut at " + std::to_string(length), count);
  }
  return count;
}

inline DamageCount flip_every_bit(const std::string& whole, const Reading& reading) {
  DamageCount count;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    read_damaged(reading, bytes, "bit " + std::to_string(bit), count);
  }
  return count;
}

/// Each of `rounds` changes 1 to 4 places: a byte set, bytes removed, or a piece copied elsewhere.
inline DamageCount mutate(const std::string& whole, int rounds, const Reading& reading) {
  DamageCount count;
  std::mt19937 random(20240607);
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = whole;
    for (uint32_t change = random() % 4 + 1; change > 0 && !bytes.empty(); --change) {
      const size_t at = random() % bytes.size();
      const size_t length = std::min<size_t>(random() % 9, bytes.size() - at);
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, length);
          break;
        default:
          bytes.insert(random() % bytes.size(), bytes.substr(at, length));
      }
    }
    read_damaged(reading, bytes, "round " + std::to_string(round), count);
  }
  return count;
}

}  // namespace levin::files::testing
