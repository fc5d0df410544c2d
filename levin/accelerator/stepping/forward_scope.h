#pragma once
// ForwardScope: what a module's forward runs under.

#include <memory>

#include "levin/accelerator/stepping/precision.h"
#include "levin/strategy/strategy.h"
#include "levin/strategy/sync_batch_norm.h"

namespace levin {

/// For the time of the object, in this thread.
class ForwardScope {
 public:
  /// synced: the ranks over which batch norm is taken; none: each rank for itself.
  ForwardScope(const Precision& precision, at::DeviceType device, comm::ProcessGroup* synced,
               Strategy* strategy)
      : autocast_(precision, device),
        batch_norm_(synced),
        parameters_(strategy == nullptr ? nullptr : strategy->compute_scope()) {}

 private:
  AutocastGuard autocast_;
  SyncBatchNormGuard batch_norm_;
  std::unique_ptr<ComputeScope> parameters_;
};

}  // namespace levin
