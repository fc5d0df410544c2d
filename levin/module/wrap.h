#pragma once
// wrap: marks modules as units of the sharded strategies (fsdp, zero), like PyTorch's fully_shard,
// but without changing the module. Parameters of a unit are all-gathered, reduced and updated
// together; usually a unit is a Transformer block. Call it after the model is built and before it
// is prepared: in a constructor, in configure_model or in a loop of your own.
//
//   for (int i = 0; i < 12; ++i) blocks->push_back(levin::wrap(Block(config)));
//   levin::wrap_every<BlockImpl>(*model);            // the same, afterwards

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "levin/base/export.h"

namespace levin {

namespace detail {
LEVIN_API void mark_unit(const std::shared_ptr<torch::nn::Module>& module);
}  // namespace detail

/// Marks the module (a holder or a shared_ptr) as a unit and returns it. clone() does not copy the
/// mark.
template <class Pointer>
Pointer wrap(Pointer module) {
  detail::mark_unit(module->shared_from_this());
  return module;
}

/// Marks each module below root of type T: wrap_every<BlockImpl>(*model).
template <class T>
void wrap_every(torch::nn::Module& root) {
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (module->as<T>() != nullptr) detail::mark_unit(module);
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

}  // namespace levin
