#pragma once
// LossGuard: what becomes of a step whose loss is NaN, infinite or far above the ones before.
// Looks at each loss before backward; the engine leaves out the steps that it names.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "levin/accelerator/options.h"
#include "levin/base/export.h"
#include "levin/base/state.h"

namespace levin {

/// warn: a line in the log; skip: one too, and the optimizer step that the batch belongs to is not
/// taken, on any rank; rollback: as skip, and the Trainer goes back to its last checkpoint; stop: an
/// Error, which ends the run, whose last checkpoint stands. On a GPU each policy but off waits for
/// the loss.
class LEVIN_API LossGuard {
 public:
  /// Throws Error "accelerator.loss.policy".
  explicit LossGuard(const LossGuardOptions& options = {});

  bool is_on() const;
  /// Some loss makes it skip: the ranks must agree on each step.
  bool may_skip() const { return has_policy("skip") || may_roll_back(); }
  /// Some loss makes the run go back to a checkpoint.
  bool may_roll_back() const { return has_policy("rollback"); }

  /// The decision about the step of a loss.
  enum class Verdict { kTake, kSkip, kRollBack };
  /// where: "batch 3 of epoch 1". Throws Error "accelerator.loss.stop".
  Verdict look(const at::Tensor& loss, const std::function<std::string()>& where);

  /// The running mean, so that a resumed run sees the same spikes.
  State state_dict() const;
  void load_state_dict(const State& state);
  double mean() const { return mean_; }
  /// Losses that the mean is of, at most the window's.
  int64_t num_losses() const { return count_; }
  /// Two are equal that have seen the same losses.
  bool operator==(const LossGuard& other) const {
    return mean_ == other.mean_ && count_ == other.count_;
  }

 private:
  bool has_policy(std::string_view policy) const;

  LossGuardOptions options_;
  double mean_ = 0.0;
  int64_t count_ = 0;
};

}  // namespace levin
