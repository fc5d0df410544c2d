#pragma once
// The dtypes that files of torch.save hold, by LibTorch's names and by Python's.

#include <c10/core/ScalarType.h>

#include <array>
#include <string_view>

namespace levin::detail {

struct TorchDtype {
  at::ScalarType type;
  std::string_view python;   ///< torch.NAME
  std::string_view storage;  ///< torch.NAME, the class of typed storages; empty: Python has none
};

inline constexpr std::array<TorchDtype, 27> kTorchDtypes = {{
    {at::kDouble, "float64", "DoubleStorage"},
    {at::kFloat, "float32", "FloatStorage"},
    {at::kHalf, "float16", "HalfStorage"},
    {at::kBFloat16, "bfloat16", "BFloat16Storage"},
    {at::kLong, "int64", "LongStorage"},
    {at::kInt, "int32", "IntStorage"},
    {at::kShort, "int16", "ShortStorage"},
    {at::kChar, "int8", "CharStorage"},
    {at::kByte, "uint8", "ByteStorage"},
    {at::kBool, "bool", "BoolStorage"},
    {at::kComplexDouble, "complex128", "ComplexDoubleStorage"},
    {at::kComplexFloat, "complex64", "ComplexFloatStorage"},
    {at::kComplexHalf, "complex32", ""},
    {at::kUInt64, "uint64", ""},
    {at::kUInt32, "uint32", ""},
    {at::kUInt16, "uint16", ""},
    {at::kFloat8_e4m3fn, "float8_e4m3fn", ""},
    {at::kFloat8_e5m2, "float8_e5m2", ""},
    {at::kFloat8_e4m3fnuz, "float8_e4m3fnuz", ""},
    {at::kFloat8_e5m2fnuz, "float8_e5m2fnuz", ""},
    {at::kFloat8_e8m0fnu, "float8_e8m0fnu", ""},
    {at::ScalarType::Float4_e2m1fn_x2, "float4_e2m1fn_x2", ""},
    {at::ScalarType::Bits1x8, "bits1x8", ""},
    {at::ScalarType::Bits2x4, "bits2x4", ""},
    {at::ScalarType::Bits4x2, "bits4x2", ""},
    {at::ScalarType::Bits8, "bits8", ""},
    {at::ScalarType::Bits16, "bits16", ""},
}};

}  // namespace levin::detail
