#pragma once
// Gradients' inside.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "levin/strategy/fsdp/gradients/gradients.h"

namespace levin::fsdp {

/// Gradients of at least this many bytes are computed in place. Smaller ones, which are in a cache, are copied.
constexpr size_t kLargeGradient = 256 << 10;

/// The gradients of a unit.
struct Gradients::UnitGradients {
  Unit* unit = nullptr;
  at::ScalarType type = at::kFloat;   ///< in which they are reduced
  UnitLayout layout = {};             ///< of the parameters that train
  at::Tensor own = {};                ///< this rank's rows, kept from step to step
  at::Tensor target = {};             ///< memory to sum into: own, or memory for once
  at::Tensor memory = {};             ///< memory of the full gradients
  std::optional<size_t> buffer = {};  ///< buffer of the ring that the memory is, if it is one
  std::shared_ptr<comm::Work> scatter = {};
  int64_t missing = 0;
  bool launched = false;
  size_t first_flag = 0;  ///< of its parameters, in used_

  /// The place of a gradient in the unit's memory, and its rows in this rank's.
  at::Tensor place_of(const shard::ShardedParameter& parameter, const at::Tensor& in) const {
    return in.as_strided(parameter.sizes(), parameter.full().tensor().strides(),
                         layout.offset(parameter.gradient().number));
  }
};

/// Bytes of a parameter's full gradient.
inline size_t gradient_bytes(const shard::ShardedParameter& parameter) {
  return parameter.full().tensor().nbytes();
}

}  // namespace levin::fsdp
