#pragma once
// Python's // of integers, which rounds down where C++ rounds towards 0.

#include <cstdint>

namespace levin::interchange {

/// b is not 0, and a / b has 64 bits.
inline int64_t floor_div(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

}  // namespace levin::interchange
