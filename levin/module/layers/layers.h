#pragma once
// The layers of torch::nn, a row each: which file of Python's torch.nn has the class, and which options
// its forward pass reads on the host (a dropout's rate, a convolution's stride, a Sequential's length).
// Not for users.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "levin/base/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::detail {

struct Layer {
  /// Returns a number computed from a module of this class, without allocating.
  using Read = int64_t (*)(const torch::nn::Module&);

  std::string name;              ///< "Conv2d"
  std::string_view python_file;  ///< "conv", of torch.nn.modules.conv.Conv2d
  const std::type_info* type;    ///< torch::nn::Conv2dImpl
  bool (*is)(const torch::nn::Module&);
  Read fingerprint = nullptr;   ///< another number after any option changed; null without options
  Read num_children = nullptr;  ///< null but for containers
};

LEVIN_API const std::vector<Layer>& layers();

/// Returns the row of the module's class, or of one that it derives from; null for other modules.
LEVIN_API const Layer* layer_of(const torch::nn::Module& module);

/// Returns "Conv2d" for torch::nn::Conv2dImpl, "Net" for net::Net.
std::string class_name(const torch::nn::Module& module);

/// Something that a forward pass reads of a module, which must outlive it. A guard of a recorded step.
struct ModuleOptions {
  std::string of;
  const torch::nn::Module* module;
  Layer::Read read;
  /// A container's when this was made, else -1. A container's fingerprint is the number of its children.
  int64_t num_children = -1;

  int64_t fingerprint() const { return read(*module); }
};

/// Returns those of the modules that are layers of torch::nn with options, or containers.
LEVIN_API std::vector<ModuleOptions> options_of(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
    const std::vector<std::string>& names);

}  // namespace levin::detail
