#pragma once
// PreparedOptimizer: an optimizer with its schedule, as the engine and users drive it. PreparedScheduler: a learning
// rate schedule of torch::optim, which moves with the optimizers.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/module/context.h"

namespace torch::optim {
class LRScheduler;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace levin {

class Stepping;

namespace optim {
class Optimizer;
}  // namespace optim

/// A handle: copies share the optimizer.
class LEVIN_API PreparedOptimizer : public OptimizerHandle {
 public:
  struct Shared;
  explicit PreparedOptimizer(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  /// Inside an accumulation window (Accelerator::accumulate) that is not complete, step does nothing
  /// and zero_grad keeps the gradients. A step that is left out (step_was_skipped) does not move
  /// the schedule.
  void step() override;
  /// Loss and gradients of LBFGS are those of all ranks' batches. Throws Error "optim.closure" where
  /// the class computes the loss several times and the run cannot: within an accumulation window, with
  /// 16-mixed, nan_policy or spike_policy.
  at::Tensor step(const std::function<at::Tensor()>& closure) override;
  void zero_grad() override;
  /// Works for the optimizers that were prepared together.
  void toggle() override;
  void untoggle() override;
  void clip_grad_norm(double max_norm) override;
  double learning_rate() const override;

  optim::Optimizer& optimizer() const;
  int64_t frequency() const;
  bool has_schedule() const;
  /// Updates so far. A recorded step that calls this is replayed only under the same number.
  int64_t steps() const;
  /// Updates so far, for code outside of a step: no condition of a recording.
  int64_t num_updates() const;
  /// The last step() changed no parameter: gradients overflowed, or the loss was bad.
  bool step_was_skipped() const;
  /// Is called before each step, with gradients that are complete.
  void before_step(std::function<void(OptimizerHandle&)> hook);
  /// Moves the schedule on. Needed where step_scheduler_with_optimizer is false.
  void step_schedule();
  /// Parameters of the other optimizers that are not its own too, which toggle() freezes.
  void set_rivals(const std::vector<PreparedOptimizer>& all);

  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  std::shared_ptr<Shared> shared_;
};

namespace detail {

/// Where a schedule stands: of LRScheduler the count of its steps, which is all that LibTorch's
/// own have.
LEVIN_API State schedule_state(const torch::optim::LRScheduler& schedule);
LEVIN_API State schedule_state(const torch::optim::ReduceLROnPlateauScheduler& schedule);
LEVIN_API void load_schedule_state(torch::optim::LRScheduler& schedule, const State& state);
LEVIN_API void load_schedule_state(torch::optim::ReduceLROnPlateauScheduler& schedule,
                                   const State& state);

/// Returns whether the schedules of torch::optim move now: after a step that was taken, or by the user's own calls.
LEVIN_API bool schedules_move(const Stepping& stepping);

}  // namespace detail

/// A handle. step(...) takes the arguments of the schedule's step and
/// calls it once for each optimizer step that was taken: not inside an accumulation window, nor after a
/// step that was left out. Where step_scheduler_with_optimizer is false it always calls it.
template <class Scheduler>
class PreparedScheduler {
 public:
  PreparedScheduler(std::shared_ptr<Scheduler> scheduler, Stepping& stepping)
      : scheduler_(std::move(scheduler)), stepping_(&stepping) {}

  template <class... Args>
  void step(Args&&... args) {
    if (detail::schedules_move(*stepping_)) scheduler_->step(std::forward<Args>(args)...);
  }
  Scheduler& scheduler() const { return *scheduler_; }

  /// The count of steps, and what the schedule's own state_dict() gives where it has one. Learning
  /// rates are part of the optimizer's state.
  State state_dict() const {
    State state = detail::schedule_state(*scheduler_);
    if constexpr (kHasState) state.set("own", scheduler_->state_dict());
    return state;
  }
  void load_state_dict(const State& state) {
    detail::load_schedule_state(*scheduler_, state);
    if constexpr (kHasState) scheduler_->load_state_dict(state.child("own"));
  }

 private:
  static constexpr bool kHasState = requires(Scheduler& own, const State& state) {
    State(own.state_dict());
    own.load_state_dict(state);
  };

  std::shared_ptr<Scheduler> scheduler_;
  Stepping* stepping_;
};

}  // namespace levin
