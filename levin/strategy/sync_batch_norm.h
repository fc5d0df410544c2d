#pragma once
// Synchronized batch norm: batch norm layers that take their statistics over the batches of all
// ranks, as torch.nn.SyncBatchNorm does, without a change of the module.
//
//   const SyncBatchNormGuard guard(&group);     // around forward, and around its backward
//   auto loss = loss_of(net->forward(x));

#include <memory>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"

namespace levin {

/// While it lives, aten::native_batch_norm of this thread in training mode, and its backward, go
/// over the ranks of the group; no group changes nothing. Every rank runs the same layers in the
/// same order. Tensors on the CPU or on XLA, where the exchange is a part of the step's program;
/// others throw Error "strategy.sync_batchnorm".
///
/// The layer is caught below autograd, by graph/interposer.
class LEVIN_API SyncBatchNormGuard {
 public:
  explicit SyncBatchNormGuard(comm::ProcessGroup* group);
  ~SyncBatchNormGuard();
  SyncBatchNormGuard(const SyncBatchNormGuard&) = delete;
  SyncBatchNormGuard& operator=(const SyncBatchNormGuard&) = delete;

 private:
  struct Interposed;
  std::unique_ptr<Interposed> interposed_;
};

}  // namespace levin
