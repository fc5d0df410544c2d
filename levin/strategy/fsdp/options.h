#pragma once
// FsdpOptions: what strategies "fsdp" and "zero" can be told.

#include <cstdint>
#include <string>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin {

struct FsdpOptions {
  // Behaviour
  /// Where a unit is cut into the ranks' parts: at any row of a parameter (rows), or between
  /// parameters alone (owned), for optimizers that need whole matrices.
  std::string cut = "rows";
  std::string gradient_reduction = "mean";  ///< over ranks: mean or sum
  bool reduce_in_float32 = false;           ///< gradients of half types are summed in float32
  int64_t zero_stage = 2;                   ///< of strategy zero: 1, 2 or 3
  // Performance
  /// What wrap() marked no part of is made units of so many MiB.
  double unit_mb = 16;
  /// Memory for gathered parameters, in MiB, where ranks share none: 0: of three units; -1: all of
  /// them (PyTorch's reshard_after_forward = false).
  double gathered_mb = 0;

  LEVIN_API void fields(FieldVisitor& field);
};

/// Throws Error "strategy.fsdp.options" for words and numbers that are none.
void check_fsdp_options(const FsdpOptions& options);
/// The flags of options that are not what they are by default, for errors that name them.
std::string changed_fsdp_options(const FsdpOptions& options);

}  // namespace levin
