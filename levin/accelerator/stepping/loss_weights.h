#pragma once
// LossWeights: what each batch counts for in the mean of its group and of the ranks, such as its
// number of tokens: sum of weight * loss over the sum of weights.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "levin/comm/process_group.h"

namespace levin {

class LossWeights {
 public:
  /// records: steps may be recorded, and no weight is looked at on the host.
  LossWeights(comm::ProcessGroup world, at::Device device, bool records)
      : world_(std::move(world)), device_(device), records_(records) {}

  /// Of the batch that is under way: one number, 0 or more.
  void set(at::Tensor weight) { batch_ = std::move(weight); }
  void begin_batch() { batch_.reset(); }
  void begin_group();

  /// The batch has a weight of 0, as a mean over no tokens has, which may be NaN. False where that
  /// could not be seen without waiting.
  bool batch_counts_nothing();
  /// The loss as it is added to those of its group, of so many batches: divided by their number, or
  /// times its weight. Throws Error "trainer.loss_weight" where some batches have weights and
  /// others have none.
  at::Tensor weighted(const at::Tensor& loss, int64_t group_size);
  /// What the gradients of the group, a mean over the ranks, are to be divided by; none where
  /// weighted() has seen to it. All ranks call it at the group's end.
  std::optional<at::Tensor> of_group(int64_t group_size);
  bool counts_nothing(const at::Tensor& weight) const;

 private:
  void check_same();
  void agree();
  bool is_alone() const { return world_.size() == 1; }
  void make_sum();

  comm::ProcessGroup world_;
  at::Device device_;
  bool records_;
  std::optional<at::Tensor> batch_;
  std::optional<bool> weighs_;  ///< batches have weights; unset: none has come yet
  bool agreed_ = false;         ///< by the ranks
  at::Tensor sum_;              ///< of the group
};

}  // namespace levin
