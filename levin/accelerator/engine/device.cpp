#include "levin/accelerator/engine/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>

#include "levin/accelerator/options.h"
#include "levin/base/check.h"
#include "levin/xla/device/runtime.h"

namespace levin {

at::Device select_device(std::string_view kind, RankInfo rank) {
  const bool known = kind == "auto" || kind == "cpu" || kind == "gpu" || kind == "cuda";
  LEVIN_CHECK(known, "accelerator.device",
              "got '{}', wanted auto, cpu, gpu, tpu or xla; set --accelerator", kind);
  const int64_t count = num_gpus();
  const bool has_cuda = count > 0;
  if (kind == "cpu" || (kind == "auto" && !has_cuda)) return at::Device(at::kCPU);
  LEVIN_CHECK(has_cuda, "accelerator.device",
              "got '{}', but LibTorch finds no CUDA device{}; use --accelerator cpu", kind,
              c10::impl::hasDeviceGuardImpl(at::kCUDA) ? "" : " (it was built without CUDA)");
  LEVIN_CHECK(rank.local_rank < count, "accelerator.device",
              "got process {} of this machine, but {} CUDA devices; every process needs its own, "
              "so set --devices {}, or --accelerator cpu",
              rank.local_rank, count, count);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(rank.local_rank));
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return device;
}

int64_t processes_for(std::string_view kind, int64_t gpus) {
  const bool on_gpu = kind == "auto" || kind == "gpu" || kind == "cuda";
  return on_gpu ? std::max<int64_t>(gpus, 1) : 1;
}

int64_t num_gpus() { return at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0; }

bool is_xla(const AcceleratorOptions& options) {
  return !options.cpu && (options.accelerator == "tpu" || options.accelerator == "xla");
}

at::Device device_of(const AcceleratorOptions& options, RankInfo rank) {
  if (is_xla(options)) return {at::kXLA, 0};
  LEVIN_CHECK(
      options.engine.pjrt_plugin.empty(), "accelerator.device",
      "got --pjrt-plugin {} with --accelerator {}, where it has no effect; set --accelerator xla",
      options.engine.pjrt_plugin, options.accelerator);
  return select_device(options.cpu ? "cpu" : options.accelerator, rank);
}

std::shared_ptr<xla::Runtime> open_xla(const AcceleratorOptions& options,
                                       const comm::ProcessGroup& world) {
  if (!is_xla(options)) return nullptr;
  const bool is_tpu = options.accelerator == "tpu" && options.engine.pjrt_plugin.empty();
  const std::chrono::duration<double> timeout(options.engine.comm.timeout_s);
  return xla::Runtime::open(
      {.plugin = is_tpu ? "tpu" : options.engine.pjrt_plugin,
       .num_devices = std::max<int64_t>(options.devices, 0),
       .rank = world.rank(),
       .world_size = world.size(),
       .store = world.store("xla"),
       .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)});
}

// CUDA's headers are not LibTorch's; its runtime is in the process where a CUDA device is.
std::optional<std::pair<int, int>> compute_capability(at::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  using GetAttribute = int(int* value, int attribute, int device);
  auto* get = reinterpret_cast<GetAttribute*>(::dlsym(RTLD_DEFAULT, "cudaDeviceGetAttribute"));
  constexpr int kMajor = 75, kMinor = 76;  // cudaDevAttrComputeCapabilityMajor and Minor
  int major = 0, minor = 0;
  const bool known = get != nullptr && get(&major, kMajor, device.index()) == 0 &&
                     get(&minor, kMinor, device.index()) == 0;
  if (!known) return std::nullopt;
  return std::pair(major, minor);
}

}  // namespace levin
