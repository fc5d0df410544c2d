#pragma once
// Which device a run computes on.

#include <c10/core/Device.h>

#include <string_view>

#include "levin/base/export.h"
#include "levin/base/rank.h"

namespace levin {

/// kind: "auto" (a CUDA device where there is one), "cpu", "gpu" or "cuda". The rank's own device
/// is the one of its local rank. Throws Error "accelerator.device".
LEVIN_API at::Device select_device(std::string_view kind, RankInfo rank);

}  // namespace levin
