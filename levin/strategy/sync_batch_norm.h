#pragma once
// Synchronized batch norm: batch norm layers that take their statistics over the batches of all
// ranks, as torch.nn.SyncBatchNorm does, for modules that are left as they are.
//
//   const SyncBatchNormGuard guard(&group);     // around forward, and around its backward
//   auto loss = loss_of(net->forward(x));

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"

namespace levin {

/// While it lives, aten::native_batch_norm of this thread in training mode, and its backward, go
/// over the ranks of the group; no group changes nothing. Every rank runs the same layers in the
/// same order. Tensors on the CPU; others throw Error "strategy.sync_batchnorm".
///
/// The layer is caught below autograd, at LibTorch's dispatch key Fake, which is there for such
/// uses.
class LEVIN_API SyncBatchNormGuard {
 public:
  explicit SyncBatchNormGuard(comm::ProcessGroup* group);
  ~SyncBatchNormGuard();
  SyncBatchNormGuard(const SyncBatchNormGuard&) = delete;
  SyncBatchNormGuard& operator=(const SyncBatchNormGuard&) = delete;

 private:
  comm::ProcessGroup* before_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> include_;
};

}  // namespace levin
