#pragma once
// DdpOptions: what strategy "ddp" can be told, under the names of PyTorch's
// DistributedDataParallel.

#include <cstdint>
#include <string>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin {

struct DdpOptions {
  // Behaviour
  bool broadcast_buffers = true;       ///< rank 0's for all, with each update
  bool find_unused_parameters = true;  ///< false: a parameter without gradient is an error
  bool static_graph = false;           ///< every step uses the parameters that the first one used
  std::string gradient_reduction = "mean";  ///< over ranks: mean or sum
  std::string comm_hook = "none";           ///< gradients on their way: none, fp16, bf16 or fp32
  // Performance
  double bucket_cap_mb = 25;   ///< gradients reduced at a time, MiB
  double first_bucket_mb = 1;  ///< of the first to arrive, so that reducing starts early
  bool overlap = true;         ///< reduce while backward still runs, where one module is prepared
  /// Update the parameters of a bucket while the next is still being reduced. Between backward and
  /// the optimizer's step gradients are not to be looked at, but by clipping.
  bool overlap_update = false;

  LEVIN_API void fields(FieldVisitor& field);
};

/// Throws Error "strategy.ddp.options" for words and numbers that are none, and for options that do
/// nothing beside the others.
void check_ddp_options(const DdpOptions& options);
/// The flags of options that are not what they are by default, for errors that name them.
std::string changed_ddp_options(const DdpOptions& options);

// FsdpOptions: what strategies "fsdp" and "zero" can be told.

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
