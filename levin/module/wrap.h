#pragma once
// wrap: marks modules as units of the sharded strategies (fsdp, zero). A unit is what is gathered,
// reduced and updated at a time: a Transformer's block, as a rule.
// Between building a model and preparing it: in a constructor, configure_model or a loop of one's own.
//
//   for (int i = 0; i < 12; ++i) blocks->push_back(levin::wrap(Block(config)));
//   levin::wrap_every<BlockImpl>(*model);            // the same, afterwards
//
// Follows PyTorch's fully_shard, which is called on each unit; here the module stays as it is.

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "levin/base/export.h"

namespace levin {

namespace detail {
LEVIN_API void mark_unit(const std::shared_ptr<torch::nn::Module>& module);
}  // namespace detail

/// Marks the module (a holder or a shared_ptr) and returns it. The marks of a module that was
/// cloned are not the clone's.
template <class Pointer>
Pointer wrap(Pointer module) {
  detail::mark_unit(module->shared_from_this());
  return module;
}

/// Marks each module below root that is a T: wrap_every<BlockImpl>(*model).
template <class T>
void wrap_every(torch::nn::Module& root) {
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (module->as<T>() != nullptr) detail::mark_unit(module);
  }
}

/// Marks the smallest modules below root that have at least so many parameters with those below
/// them; what such a module's children have of their own marks is left out.
LEVIN_API void wrap_by_size(torch::nn::Module& root, int64_t min_num_params);
/// Marks each module below root that has parameters of its own.
LEVIN_API void wrap_all(torch::nn::Module& root);

LEVIN_API bool is_unit(const torch::nn::Module& module);

}  // namespace levin
