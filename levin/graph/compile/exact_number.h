#pragma once
// ExactNumber: a number of the host by which a recorded step may decide, to its last bit.

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include "levin/base/export.h"

namespace levin::graph {

/// Two are equal where they are of one kind, whole or not, and all bits are: 2^53 is not 2^53 + 1,
/// 0.0 is not -0.0, and NaN is NaN.
class ExactNumber {
 public:
  ExactNumber() = default;
  template <class Number>
    requires std::is_arithmetic_v<Number>
  ExactNumber(Number number)  // NOLINT(google-explicit-constructor): it is that number
      : bits_(bits_of(number)), is_whole_(std::is_integral_v<Number>) {}

  bool operator==(const ExactNumber&) const = default;
  uint64_t bits() const { return bits_; }
  LEVIN_API std::string text() const;

 private:
  template <class Number>
  static uint64_t bits_of(Number number) {
    if constexpr (std::is_integral_v<Number>) return static_cast<uint64_t>(number);
    return std::bit_cast<uint64_t>(static_cast<double>(number));
  }

  uint64_t bits_ = 0;
  bool is_whole_ = true;
};

}  // namespace levin::graph
