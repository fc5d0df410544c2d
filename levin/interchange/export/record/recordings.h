#pragma once
// Recordings: the same call of a module at several sizes, found to be the same operators.
// Not for users.

#include <cstdint>
#include <string>
#include <vector>

#include "levin/interchange/export/record/recording.h"
#include "levin/interchange/export/sizes/dynamic_sizes.h"

namespace levin::interchange {

struct Recordings {
  std::vector<Recording> each;  ///< the first one's numbers are the hints
  std::vector<Point> points;    ///< the sizes of each
};

/// By value: which memory it lies in, that of the first value that it is a view of or was written into.
std::vector<ValueId> roots_of(const Recording& recording);

/// A number in a constant, which may be another at other sizes.
struct ConstantNumber {
  bool is_real = false;
  int64_t whole = 0;
  double real = 0;
};

/// The integers and reals of an argument, in their order; none for other constants.
std::vector<ConstantNumber> numbers_of(const c10::IValue& constant);

/// Returns whether both are the same but for their numbers; with `exactly`, with the same numbers.
bool is_same_constant(const c10::IValue& left, const c10::IValue& right, bool exactly);

/// Returns what the second recording does otherwise than the first, as "aten::relu instead of aten::gelu, in
/// Net::forward at net.cpp:7"; empty where it is the same. exactly: numbers and sizes count too.
std::string difference_of(const Recording& first, const Recording& second, bool exactly);

}  // namespace levin::interchange
