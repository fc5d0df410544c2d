#pragma once
// DdpOptions: options of strategy "ddp", named as in PyTorch's DistributedDataParallel.
//
//   levin::Trainer trainer({.strategy = "ddp", .engine = {.ddp = {.bucket_cap_mb = 50}}});

#include <cstdint>
#include <string>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/module/wrap.h"

namespace levin {

/// Options of strategy "ddp".
struct DdpOptions {
  // Behaviour
  bool broadcast_buffers = true;            ///< broadcast rank 0's buffers with each update
  bool find_unused_parameters = true;       ///< false: a parameter without a gradient is an error
  bool static_graph = false;                ///< every step uses the same parameters as the first
  std::string gradient_reduction = "mean";  ///< reduction over ranks: mean or sum
  std::string comm_hook = "none";  ///< dtype of reduced gradients: none, fp16, bf16 or fp32
  // Performance
  double bucket_cap_mb = 25;   ///< size of a gradient bucket, MiB
  double first_bucket_mb = 1;  ///< size of the first bucket, so that reducing starts early, MiB
  bool overlap = true;         ///< reduce during backward, if one module is prepared
  /// Update the parameters of a bucket while the next bucket is being reduced. Between backward and
  /// the optimizer's step, only clipping may read the gradients.
  bool overlap_update = false;

  /// Lists the options for flags, TOML and checkpoints.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Throws Error "strategy.ddp.options" for an unknown word or a number out of range. Options that
/// have no effect in a run throw the same error later, when the run is set up.
void check_ddp_options(const DdpOptions& options);
/// Returns the flags of options that differ from their defaults, for error messages.
std::string changed_ddp_options(const DdpOptions& options);

// FsdpOptions: options of strategies "fsdp" and "zero".

/// Options of strategies "fsdp" and "zero".
struct FsdpOptions {
  // Behaviour
  /// Places at which a unit is split into shards: at any row of a parameter (rows), or only between
  /// parameters (owned), for optimizers that need full matrices.
  std::string cut = "rows";
  std::string gradient_reduction = "mean";  ///< reduction over ranks: mean or sum
  bool reduce_in_float32 = false;           ///< reduce float16 and bfloat16 gradients in float32
  /// Copies of the parameters, and the ranks that each is sharded over (HSDP, hybrid sharding):
  /// "replicate=2,fsdp=4", "hosts" (a copy on each host) or "" (one copy over all ranks).
  std::string mesh = {};
  /// Stage of strategy zero: 1 shards optimizer state, 2 also gradients, 3 also parameters.
  int64_t zero_stage = 2;
  /// Parameters that stay whole on every rank (ignored_params of PyTorch's fully_shard), by patterns
  /// of their names with commas between them, as in OptimizerConfig::of: "*.router.*,lm_head.weight".
  /// Their gradients are all-reduced.
  std::string ignored_params = {};
  // Performance
  /// Size of the units made of parameters outside wrapped modules (wrap()), MiB.
  double unit_mb = 16;
  /// Memory for all-gathered parameters, MiB, if ranks share no memory. 0: three units; -1: all of
  /// them (the same as reshard_after_forward = false).
  double gathered_mb = 0;
  /// Says whether a gathered unit is freed after forward, if ranks share no memory: true frees it when
  /// gathered_mb is used up, false keeps it until the update, and a number N keeps 1/N of it on each of
  /// N neighbouring ranks, from which backward gathers it. Not set: as gathered_mb says. wrap() may
  /// set it for one unit.
  ReshardAfterForward reshard_after_forward = {};

  /// Lists the options for flags, TOML and checkpoints.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Throws Error "strategy.fsdp.options" for an unknown word or a number out of range.
void check_fsdp_options(const FsdpOptions& options);
/// Returns the flags of options that differ from their defaults, for error messages.
std::string changed_fsdp_options(const FsdpOptions& options);

}  // namespace levin
