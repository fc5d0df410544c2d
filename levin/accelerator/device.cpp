#include "levin/accelerator/device.h"

#include <ATen/Context.h>

#include "levin/base/check.h"

namespace levin {

at::Device select_device(std::string_view kind, RankInfo rank) {
  const bool known = kind == "auto" || kind == "cpu" || kind == "gpu" || kind == "cuda";
  LEVIN_CHECK(known, "accelerator.device", "got '{}', wanted auto, cpu or gpu; set --accelerator",
              kind);
  const bool has_cuda = at::hasCUDA() && at::detail::getCUDAHooks().deviceCount() > 0;
  if (kind == "cpu" || (kind == "auto" && !has_cuda)) return at::Device(at::kCPU);
  LEVIN_CHECK(has_cuda, "accelerator.device",
              "got '{}' and LibTorch sees no CUDA device{}; use --accelerator cpu", kind,
              at::hasCUDA() ? "" : " (it is a build without CUDA)");
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(rank.local_rank));
}

}  // namespace levin
