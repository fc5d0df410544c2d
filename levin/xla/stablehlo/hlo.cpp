#include "levin/xla/stablehlo/hlo.h"

#include <fmt/ranges.h>

#include <functional>
#include <iterator>
#include <numeric>

#include "levin/base/check.h"

namespace levin::xla {

int64_t Hlo::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::string_view element_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kBool:
      return "i1";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "ui8";
    case at::kShort:
      return "i16";
    case at::kInt:
      return "i32";
    case at::kLong:
      return "i64";
    case at::kUInt32:
      return "ui32";
    case at::kUInt64:
      return "ui64";
    default:
      LEVIN_FAIL("xla.dtype",
                 "got a tensor of {}, wanted a float of 16, 32 or 64 bits, an integer or bool",
                 c10::toString(dtype));
  }
}

std::string type_text(at::ScalarType dtype, at::IntArrayRef sizes) {
  std::string text = "tensor<";
  for (const int64_t size : sizes) fmt::format_to(std::back_inserter(text), "{}x", size);
  return text.append(element_type(dtype)).append(">");
}

std::string array_text(at::IntArrayRef numbers) {
  return numbers.empty() ? "array<i64>" : fmt::format("array<i64: {}>", list_text(numbers));
}

std::string type_text(const Hlo& value) { return type_text(value.dtype, value.sizes); }

std::string list_text(at::IntArrayRef numbers) {
  return fmt::format("{}", fmt::join(numbers, ", "));
}

}  // namespace levin::xla
