#pragma once
// Which device a run computes on.

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "levin/base/export.h"
#include "levin/base/rank.h"

namespace levin::xla {
class Runtime;
}  // namespace levin::xla

namespace levin {

/// kind: "auto" (a CUDA device where there is one), "cpu", "gpu" or "cuda". The rank's own device
/// is the one of its local rank. Throws Error "accelerator.device".
LEVIN_API at::Device select_device(std::string_view kind, RankInfo rank);

struct AcceleratorOptions;

/// What a run computes on.
struct Hardware {
  at::Device device = at::kCPU;
  std::shared_ptr<xla::Runtime> xla = nullptr;  ///< where the device is one of XLA
};

/// Whether one process holds all devices of its machine.
LEVIN_API bool is_xla(const AcceleratorOptions& options);
/// Throws Error "accelerator.device" and what xla::Runtime::open throws.
LEVIN_API Hardware open_hardware(const AcceleratorOptions& options, RankInfo rank);

/// Of a CUDA device: {major, minor}; none for others.
LEVIN_API std::optional<std::pair<int, int>> compute_capability(at::Device device);

}  // namespace levin
