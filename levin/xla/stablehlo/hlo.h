#pragma once
// Hlo: a value of a StableHLO program, and how its type and lists of numbers are written.

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

namespace levin::xla {

using Dims = std::vector<int64_t>;

/// A value of the program. Its elements have no strides: they are what the indices say.
struct Hlo {
  int64_t id = -1;
  at::ScalarType dtype = at::kFloat;
  Dims sizes = {};

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t numel() const;
};

/// Returns StableHLO's name of the type, "f32". Throws Error "xla.dtype" for a type without one.
std::string_view element_type(at::ScalarType dtype);
/// "tensor<8x784xf32>"
std::string type_text(at::ScalarType dtype, at::IntArrayRef sizes);
std::string type_text(const Hlo& value);
/// "array<i64: 1, 0>"
std::string array_text(at::IntArrayRef numbers);
/// "1, 0"
std::string list_text(at::IntArrayRef numbers);

}  // namespace levin::xla
