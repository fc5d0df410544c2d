#pragma once
// PreparedScheduler: a learning rate schedule of torch::optim, which moves with the optimizers.

#include <utility>

#include "levin/accelerator/stepping.h"

namespace levin {

/// A handle over a schedule that must outlive it. step(...) takes what the schedule's does and
/// moves it once for each step that was taken: not inside a group of batches, nor after a step that
/// was left out. Without step_scheduler_with_optimizer it always moves.
template <class Scheduler>
class PreparedScheduler {
 public:
  PreparedScheduler(Scheduler& scheduler, Stepping& stepping)
      : scheduler_(&scheduler), stepping_(&stepping) {}

  template <class... Args>
  void step(Args&&... args) {
    const bool taken = stepping_->sync_gradients() && !stepping_->was_left_out();
    if (taken || !stepping_->moves_schedules()) scheduler_->step(std::forward<Args>(args)...);
  }
  Scheduler& scheduler() const { return *scheduler_; }

 private:
  Scheduler* scheduler_;
  Stepping* stepping_;
};

}  // namespace levin
