#pragma once
// The names of safetensors' dtypes as LibTorch's.

#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace levin::files {

inline constexpr std::array<std::pair<std::string_view, at::ScalarType>, 19> kSafetensorsDtypes = {{
    {"F64", at::ScalarType::Double},
    {"F32", at::ScalarType::Float},
    {"C64", at::ScalarType::ComplexFloat},
    {"F16", at::ScalarType::Half},
    {"BF16", at::ScalarType::BFloat16},
    {"I64", at::ScalarType::Long},
    {"I32", at::ScalarType::Int},
    {"I16", at::ScalarType::Short},
    {"I8", at::ScalarType::Char},
    {"U8", at::ScalarType::Byte},
    {"U64", at::ScalarType::UInt64},
    {"U32", at::ScalarType::UInt32},
    {"U16", at::ScalarType::UInt16},
    {"BOOL", at::ScalarType::Bool},
    {"F8_E4M3", at::ScalarType::Float8_e4m3fn},
    {"F8_E5M2", at::ScalarType::Float8_e5m2},
    {"F8_E4M3FNUZ", at::ScalarType::Float8_e4m3fnuz},
    {"F8_E5M2FNUZ", at::ScalarType::Float8_e5m2fnuz},
    {"F8_E8M0", at::ScalarType::Float8_e8m0fnu},
}};

/// Returns nothing for a dtype that the format does not have.
constexpr std::optional<std::string_view> safetensors_dtype(at::ScalarType dtype) {
  for (const auto& [name, known] : kSafetensorsDtypes) {
    if (known == dtype) return name;
  }
  return std::nullopt;
}

/// Returns nothing for a name that LibTorch has no type for.
constexpr std::optional<at::ScalarType> dtype_of_safetensors(std::string_view name) {
  for (const auto& [known, dtype] : kSafetensorsDtypes) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace levin::files
