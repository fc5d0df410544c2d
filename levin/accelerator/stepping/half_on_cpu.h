#pragma once
// Warns of bfloat16 and float16 on a CPU that has no instructions for them, and explains LibTorch's errors
// about their dtypes.

#include <string>
#include <string_view>

#include "levin/accelerator/stepping/precision.h"
#include "levin/base/export.h"

namespace levin {

/// The half types in which the processor computes at full speed. An unknown kind of processor does all.
struct HalfInstructions {
  bool bfloat16 = true;
  bool float16 = true;

  static LEVIN_API HalfInstructions of_this_cpu();
};

/// One sentence about a precision that computes in a half type without instructions for it; empty for
/// others.
LEVIN_API std::string warning_of_slow_half(const Precision& precision,
                                           const HalfInstructions& instructions);

/// Logs it for this CPU.
LEVIN_API void warn_of_slow_half(const Precision& precision);

/// Advice about an error of LibTorch's that comes from a half precision: a tensor that the step made
/// in float32 beside one that is of the half type, or a kernel that this CPU lacks. Empty where the error
/// is no such, or the precision is not half.
LEVIN_API std::string half_hint(const Precision& precision, std::string_view error);

}  // namespace levin
