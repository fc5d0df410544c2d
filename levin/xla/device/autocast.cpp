// Autocast on the device "xla": LibTorch's own lists of operators, which it registers for devices
// that it has kernels for.
#include <ATen/autocast_mode.h>

namespace at::autocast {
namespace {

TORCH_LIBRARY_IMPL(_, AutocastXLA, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastXLA, m) {
#define LEVIN_LOWER(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, lower_precision_fp)
#define LEVIN_FP32(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32)
#define LEVIN_FP32_SET(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32_set_opt_dtype)
#define LEVIN_PROMOTE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, promote)
#define LEVIN_OTHER(...) KERNEL_DIFFERENT_REDISPATCH_SIGNATURE(c10::DeviceType::XLA, __VA_ARGS__)
  AT_FORALL_LOWER_PRECISION_FP(LEVIN_LOWER)
  AT_FORALL_FP32(LEVIN_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(LEVIN_FP32_SET)
  AT_FORALL_PROMOTE(LEVIN_PROMOTE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(LEVIN_OTHER)
#undef LEVIN_LOWER
#undef LEVIN_FP32
#undef LEVIN_FP32_SET
#undef LEVIN_PROMOTE
#undef LEVIN_OTHER
}

}  // namespace
}  // namespace at::autocast
