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

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin {

/// Says whether a gathered unit is freed between forward and backward, as `reshard_after_forward` of
/// PyTorch's fully_shard. true: it is freed, and backward gathers it over all ranks. false: it stays
/// gathered. A number of ranks N: it is freed, but each of N neighbouring ranks keeps 1/N of it, and
/// backward gathers it from these N ranks. Ranks that share the memory of parameters free nothing, so
/// it has no effect there.
class LEVIN_API ReshardAfterForward {
 public:
  /// Makes one that is not set: the default of whoever reads it applies.
  ReshardAfterForward() = default;
  /// true or false.
  template <std::same_as<bool> T>
  ReshardAfterForward(T reshards) : ranks_(reshards ? 0 : 1) {}  // NOLINT: reads as the value it is
  /// A number of ranks; 1 is false. It must divide the number of ranks that share a copy of the
  /// parameters. Throws Error "base.text" for a number below 1.
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  ReshardAfterForward(T ranks) : ranks_(check(static_cast<int64_t>(ranks))) {}  // NOLINT

  /// Returns whether a value was set.
  bool is_set() const { return ranks_ >= 0; }
  /// Returns over how many of so many ranks a unit is sharded after forward: 1 if it stays gathered,
  /// all of them for true.
  int64_t ranks_of(int64_t all) const { return ranks_ == 0 ? all : ranks_; }

  friend LEVIN_API std::string to_text(const ReshardAfterForward& value);
  friend LEVIN_API void from_text(std::string_view text, ReshardAfterForward& value);

 private:
  static int64_t check(int64_t ranks);

  int64_t ranks_ = -1;  ///< 0: all; -1: not set
};
/// Returns "true", "false", a number of ranks, or "" for a value that is not set.
LEVIN_API std::string to_text(const ReshardAfterForward& value);
/// Reads such text. Throws Error "base.text" for other text.
LEVIN_API void from_text(std::string_view text, ReshardAfterForward& value);

/// Options of one unit, as the arguments of PyTorch's fully_shard. If a field is not set, the options
/// of the strategy (FsdpOptions) apply.
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
