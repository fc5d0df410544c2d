#pragma once
// Which device a run computes on.

#include <c10/core/Device.h>

#include <optional>
#include <string_view>
#include <utility>

#include "levin/base/export.h"
#include "levin/base/rank.h"

namespace levin {

/// kind: "auto" (a CUDA device where there is one), "cpu", "gpu" or "cuda". The rank's own device
/// is the one of its local rank. Throws Error "accelerator.device".
LEVIN_API at::Device select_device(std::string_view kind, RankInfo rank);

/// Of a CUDA device: {major, minor}; none for others.
LEVIN_API std::optional<std::pair<int, int>> compute_capability(at::Device device);

}  // namespace levin
