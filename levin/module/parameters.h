#pragma once
// Parameters and buffers of a torch::nn::Module by name, and their state as a checkpoint holds it.
// Stands between the module and whoever keeps its parameters: strategy, optimizer, checkpoint.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

struct NamedTensor {
  std::string name;  ///< with the dots of named_parameters(): "net.1.weight"
  at::Tensor tensor;
};

/// In the order of registration; a parameter shared by two modules comes once, under its first
/// name.
LEVIN_API std::vector<NamedTensor> named_parameters(const torch::nn::Module& module);

/// Parameters and buffers, detached, each storage once: a tensor that is the same as an earlier one
/// (tied weights) is left out, as safetensors wants it. Of a parameter that is divided over ranks
/// (shard/leaf.h) this rank's part, as TensorSlice.
LEVIN_API State module_state(const torch::nn::Module& module);
/// The same without the frozen parameters of a base (base.h), which stand in its files.
LEVIN_API State trained_state(const torch::nn::Module& module);

struct LoadOptions {
  bool strict = true;  ///< false passes over missing and unexpected names
};

/// Copies into the module's tensors, in place. The state's are whole, or of each at least the part
/// that the module has; those of a frozen base may be missing. Throws Error "module.state.missing", "module.state.unexpected" or
/// "module.state.shape", each listing the names concerned, before anything was changed.
LEVIN_API void load_module_state(torch::nn::Module& module, const State& state,
                                 LoadOptions options = {});

}  // namespace levin
