#pragma once
// ForwardGuards: a module's code runs under these in the engine's own loops; ForwardScope is their public handle.

#include <memory>
#include <utility>

#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/stepping/precision.h"
#include "levin/strategy/strategy.h"
#include "levin/strategy/sync_batch_norm.h"

namespace levin {

struct ForwardSettings {
  Precision precision = {};
  at::DeviceType device = at::kCPU;
  std::shared_ptr<comm::ProcessGroup> synced = nullptr;  ///< ranks of batch norm; none: this one
  std::shared_ptr<Strategy> strategy = nullptr;
};

inline ForwardConditions make_forward_conditions(ForwardSettings settings) {
  return ForwardConditions(std::make_shared<const ForwardSettings>(std::move(settings)));
}

/// Holds the guards in this thread as long as it lives.
class ForwardGuards {
 public:
  /// synced: the ranks over which batch norm is taken; none: each rank for itself.
  ForwardGuards(const Precision& precision, at::DeviceType device, comm::ProcessGroup* synced,
                Strategy* strategy)
      : autocast_(precision, device),
        batch_norm_(synced),
        parameters_(strategy == nullptr ? nullptr : strategy->compute_scope()) {}
  explicit ForwardGuards(const ForwardSettings& settings)
      : ForwardGuards(settings.precision, settings.device, settings.synced.get(),
                      settings.strategy.get()) {}

 private:
  PrecisionScope autocast_;
  SyncBatchNormGuard batch_norm_;
  std::unique_ptr<ComputeScope> parameters_;
};

}  // namespace levin
