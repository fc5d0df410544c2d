#pragma once
// wrap: marks modules as units of the sharded strategies (fsdp, zero), like PyTorch's fully_shard,
// but without changing the module. Parameters of a unit are all-gathered, reduced and updated
// together; usually a unit is a Transformer block. Call it after the model is built and before it
// is prepared: in a constructor, in configure_model or in a loop of your own.
//
//   for (int i = 0; i < 12; ++i) blocks->push_back(levin::wrap(Block(config)));
//   levin::wrap_every<BlockImpl>(*model);            // the same, afterwards
//   levin::wrap(blocks->back(), {.reshard_after_forward = false});  // stays gathered for backward

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "levin/base/export.h"
#include "levin/module/reshard_after_forward.h"

namespace levin {

/// Options of one unit, as the arguments of PyTorch's fully_shard. What is not set is as the options
/// of the strategy (FsdpOptions) say.
struct WrapOptions {
  /// Instead of FsdpOptions::reshard_after_forward.
  ReshardAfterForward reshard_after_forward = {};
  /// dtype in which the unit's gradients are reduced over the ranks (reduce_dtype of PyTorch's
  /// MixedPrecisionPolicy), instead of FsdpOptions::reduce_in_float32. The reduced gradient has the
  /// parameter's dtype again.
  std::optional<at::ScalarType> reduce_dtype = {};
};

namespace detail {
/// Throws Error "module.wrap" for a reduce_dtype other than float32, float64, bfloat16 and float16.
LEVIN_API void mark_unit(const std::shared_ptr<torch::nn::Module>& module,
                         const WrapOptions& options);
}  // namespace detail

/// Marks the module (a holder or a shared_ptr) as a unit and returns it. clone() does not copy the
/// mark. Marking a module again replaces its options. Throws Error "module.wrap" for a reduce_dtype
/// other than float32, float64, bfloat16 and float16.
template <class Pointer>
Pointer wrap(Pointer module, const WrapOptions& options = {}) {
  detail::mark_unit(module->shared_from_this(), options);
  return module;
}

/// Marks each module below root of type T: wrap_every<BlockImpl>(*model).
template <class T>
void wrap_every(torch::nn::Module& root, const WrapOptions& options = {}) {
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (module->as<T>() != nullptr) detail::mark_unit(module, options);
  }
}

/// Marks the smallest modules below root that have at least min_num_params parameters, counted with
/// their descendants. Parameters of descendants that this call marks do not count. Throws Error
/// "module.wrap" for min_num_params below 1.
LEVIN_API void wrap_by_size(torch::nn::Module& root, int64_t min_num_params);
/// Marks each module below root that has parameters of its own.
LEVIN_API void wrap_all(torch::nn::Module& root);

/// Returns whether the module is marked as a unit.
LEVIN_API bool is_unit(const torch::nn::Module& module);
/// Returns the options with which a module was marked; the defaults if it was not.
LEVIN_API WrapOptions wrap_options(const torch::nn::Module& module);

}  // namespace levin
