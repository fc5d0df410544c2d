#pragma once
// PreparedOptimizer: an optimizer with its schedule, as the engine and users drive it.

#include <cstdint>
#include <functional>
#include <memory>

#include "levin/accelerator/stepping/stepping.h"
#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/module/context.h"
#include "levin/optim/learning_rate.h"
#include "levin/optim/optimizer.h"

namespace levin {

/// A handle: copies share the optimizer.
class LEVIN_API PreparedOptimizer : public OptimizerHandle {
 public:
  PreparedOptimizer(std::unique_ptr<optim::Optimizer> optimizer,
                    const std::optional<Schedule>& schedule, int64_t frequency, int64_t total_steps,
                    std::shared_ptr<Stepping> stepping);

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
  const StepState::Optimizer& counts() const;

  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace levin
