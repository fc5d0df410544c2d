#pragma once
// Peak FLOP/s of GPUs and TPUs by name and dtype, as get_available_flops of
// lightning.fabric.utilities.throughput. ThroughputMonitor divides by it (MFU).
//
//   available_flops("NVIDIA A100-SXM4-80GB", at::kBFloat16);   // 312e12
// Not for users.

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin {
class Engine;
}  // namespace levin

namespace levin::detail {

/// Returns the peak of one GPU, or of one device that XLA sees on a TPU ("TPU v4"); nothing if the
/// name or its dtype is not known. in_tf32: float32 products run in TF32.
LEVIN_API std::optional<double> available_flops(std::string_view device_name, at::ScalarType dtype,
                                                bool in_tf32 = false);

/// Returns the model of the run's device ("NVIDIA H100 80GB HBM3", "TPU v5 lite"); "cpu" if it is
/// the CPU, and "" if it is not known.
std::string device_name(const Engine& engine);

}  // namespace levin::detail
