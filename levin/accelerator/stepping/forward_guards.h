#pragma once
// ForwardGuards: a module's code runs under these in the engine's own loops; ForwardScope is their public handle.

#include <memory>

#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/stepping/precision.h"
#include "levin/strategy/strategy.h"
#include "levin/strategy/sync_batch_norm.h"

namespace levin {

struct ForwardConditions::Impl {
  Precision precision = {};
  at::DeviceType device = at::kCPU;
  std::shared_ptr<comm::ProcessGroup> synced = nullptr;  ///< ranks of batch norm; none: this one
  std::shared_ptr<Strategy> strategy = nullptr;
};

/// Holds the guards in this thread as long as it lives.
class ForwardGuards {
 public:
  /// synced: the ranks over which batch norm is taken; none: each rank for itself.
  ForwardGuards(const Precision& precision, at::DeviceType device, comm::ProcessGroup* synced,
                Strategy* strategy)
      : autocast_(precision, device),
        batch_norm_(synced),
        parameters_(strategy == nullptr ? nullptr : strategy->compute_scope()) {}

 private:
  PrecisionScope autocast_;
  SyncBatchNormGuard batch_norm_;
  std::unique_ptr<ComputeScope> parameters_;
};

}  // namespace levin
