#pragma once
// LossWeights: what each batch counts for in the mean of its accumulation window and of the ranks, such as its
// number of tokens: sum of weight * loss over the sum of weights.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "levin/accelerator/stepping/step_state.h"
#include "levin/comm/process_group.h"

namespace levin {

class LossWeights {
 public:
  /// records: steps may be recorded, and no weight is looked at on the host.
  LossWeights(comm::ProcessGroup world, at::Device device, bool records,
              StepState::Weighing& weighing)
      : world_(std::move(world)), device_(device), records_(records), weighing_(weighing) {}

  /// weight: the batch's that is under way, one number, 0 or more.
  void set(at::Tensor weight) { batch_ = std::move(weight); }
  void begin_batch() { batch_.reset(); }
  void begin_window();

  /// The batch has a weight of 0, as a mean over no tokens has, which may be NaN. False where that
  /// could not be seen without waiting.
  bool batch_counts_nothing();
  /// Returns the loss as it is added to the losses of its window of so many batches: divided by
  /// their number or by the divisor, or times its weight. Throws Error "trainer.loss_weight" if some batches have
  /// weights and others have none.
  at::Tensor weighted(const at::Tensor& loss, int64_t window_size,
                      std::optional<double> divisor = {});
  /// At the end of a window of so many batches, on all ranks. Returns whether of_window() is there.
  bool weigh_window(int64_t window_size);
  /// The divisor of the window's gradients, a mean over the ranks; nothing if weighted() has
  /// divided already.
  const std::optional<at::Tensor>& of_window() const { return window_; }
  void forget_window() { window_.reset(); }
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
  StepState::Weighing& weighing_;
  at::Tensor sum_;  ///< sum of the window's weights
  std::optional<at::Tensor> window_;
};

}  // namespace levin
