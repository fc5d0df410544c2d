#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt::detail {
namespace {

struct Pair {
  at::ScalarType dtype;
  PJRT_Buffer_Type type;
};
constexpr Pair kDtypes[] = {
    {at::kFloat, PJRT_Buffer_Type_F32},
    {at::kDouble, PJRT_Buffer_Type_F64},
    {at::kHalf, PJRT_Buffer_Type_F16},
    {at::kBFloat16, PJRT_Buffer_Type_BF16},
    {at::kChar, PJRT_Buffer_Type_S8},
    {at::kByte, PJRT_Buffer_Type_U8},
    {at::kShort, PJRT_Buffer_Type_S16},
    {at::kUInt16, PJRT_Buffer_Type_U16},
    {at::kInt, PJRT_Buffer_Type_S32},
    {at::kUInt32, PJRT_Buffer_Type_U32},
    {at::kLong, PJRT_Buffer_Type_S64},
    {at::kUInt64, PJRT_Buffer_Type_U64},
    {at::kBool, PJRT_Buffer_Type_PRED},
    {at::kComplexFloat, PJRT_Buffer_Type_C64},
    {at::kComplexDouble, PJRT_Buffer_Type_C128},
};

}  // namespace

PJRT_Buffer_Type type_of(at::ScalarType dtype) {
  for (const Pair& pair : kDtypes) {
    if (pair.dtype == dtype) return pair.type;
  }
  LEVIN_FAIL("xla.dtype",
             "a tensor of {} cannot go to an XLA device; convert it, for example to float32",
             c10::toString(dtype));
}

at::ScalarType dtype_of(PJRT_Buffer_Type type) {
  for (const Pair& pair : kDtypes) {
    if (pair.type == type) return pair.dtype;
  }
  LEVIN_FAIL("xla.dtype",
             "LibTorch has no dtype for XLA's element type {}; convert it in the program",
             static_cast<int>(type));
}

}  // namespace levin::xla::pjrt::detail
