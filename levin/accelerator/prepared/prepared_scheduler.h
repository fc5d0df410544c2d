#pragma once
// PreparedScheduler: a learning rate schedule of torch::optim, which moves with the optimizers.

#include <memory>
#include <utility>

#include "levin/accelerator/stepping/stepping.h"
#include "levin/base/export.h"
#include "levin/base/state.h"

namespace torch::optim {
class LRScheduler;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace levin {

namespace detail {

/// Where a schedule stands: of LRScheduler the count of its steps, which is all that LibTorch's
/// own have.
LEVIN_API State schedule_state(const torch::optim::LRScheduler& schedule);
LEVIN_API State schedule_state(const torch::optim::ReduceLROnPlateauScheduler& schedule);
LEVIN_API void load_schedule_state(torch::optim::LRScheduler& schedule, const State& state);
LEVIN_API void load_schedule_state(torch::optim::ReduceLROnPlateauScheduler& schedule,
                                   const State& state);

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
    const bool taken = stepping_->sync_gradients() && !stepping_->state().was_left_out;
    if (taken || !stepping_->moves_schedules()) scheduler_->step(std::forward<Args>(args)...);
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
