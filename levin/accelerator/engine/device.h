#pragma once
// Chooses the device on which a run computes.

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "levin/base/export.h"
#include "levin/base/rank.h"
#include "levin/comm/process_group.h"

namespace levin::xla {
class Runtime;
}  // namespace levin::xla

namespace levin {

/// kind: "auto" (a CUDA device where there is one), "cpu", "gpu" or "cuda". The rank's own device
/// is the one of its local rank. Throws Error "accelerator.device".
LEVIN_API at::Device select_device(std::string_view kind, RankInfo rank);

/// Processes that keep as many GPUs busy: one for each where kind computes on them, else 1.
LEVIN_API int64_t processes_for(std::string_view kind, int64_t gpus);
/// GPUs that this process sees.
LEVIN_API int64_t num_gpus();

struct AcceleratorOptions;

/// Returns whether one process holds all devices of its machine.
LEVIN_API bool is_xla(const AcceleratorOptions& options);
/// Returns the device on which a run computes; call open_xla for an XLA device. Throws Error
/// "accelerator.device".
LEVIN_API at::Device device_of(const AcceleratorOptions& options, RankInfo rank);
/// Opens the runtime together with other processes, if there are several; nullptr if the device is
/// none of XLA. Throws the errors of xla::Runtime::open.
LEVIN_API std::shared_ptr<xla::Runtime> open_xla(const AcceleratorOptions& options,
                                                 const comm::ProcessGroup& world);

/// Returns {major, minor} of a CUDA device; nothing for others.
LEVIN_API std::optional<std::pair<int, int>> compute_capability(at::Device device);

}  // namespace levin
