#pragma once
// Precision: in which dtype parameters are kept and the forward pass computes.
// Entered by the engine around every step of a module.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "levin/base/autocast.h"
#include "levin/base/export.h"
#include "levin/data/batch.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

/// Under Lightning's names, and Accelerate's in brackets:
///   32-true (32, no)             parameters stay as the module made them
///   64-true (64), bf16-true,     parameters, buffers and the inputs of a step are of that type
///   16-true
///   bf16-mixed (bf16),           parameters stay in float32, operators that gain from it compute
///   in 16-mixed (16, fp16)          the half type (at::autocast); 16-mixed scales the loss
///   (GradScaler)
struct Precision {
  std::string name = "32-true";
  std::optional<at::ScalarType> autocast = {};    ///< unset: no autocast
  std::optional<at::ScalarType> parameters = {};  ///< unset: as the module made them
  bool scales_loss = false;

  bool has_half_parameters() const { return parameters && c10::isReducedFloatingType(*parameters); }
  /// Casts a module's floating parameters and buffers.
  LEVIN_API void convert(torch::nn::Module& module) const;
  /// Casts floating tensors to the parameters' type; others stay unchanged, and all do if that is
  /// unset.
  LEVIN_API at::Tensor convert(const at::Tensor& input) const;
  LEVIN_API Batch convert(const Batch& batch) const;
};

/// Throws Error "accelerator.precision" listing the names taken.
LEVIN_API Precision parse_precision(std::string_view name);

/// Throws Error "accelerator.precision.device" where the device cannot compute in it: bfloat16
/// needs a GPU of compute capability 8.0 (given as {8, 0}); CPUs take every type, some of them
/// slowly.
LEVIN_API void check_precision(const Precision& precision, at::Device device,
                               std::optional<std::pair<int, int>> compute_capability);

/// Autocast as the precision has it, in this thread for the time of the object; nothing for a
/// precision without it.
class PrecisionScope {
 public:
  PrecisionScope(const Precision& precision, at::DeviceType device) {
    if (precision.autocast) scope_.emplace(device, Autocast{true, *precision.autocast, true});
  }

 private:
  std::optional<AutocastScope> scope_;
};

}  // namespace levin
