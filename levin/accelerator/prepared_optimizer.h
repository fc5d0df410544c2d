#pragma once
// PreparedOptimizer: an optimizer with its schedule, as the engine and users drive it.

#include <cstdint>
#include <memory>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/module/context.h"
#include "levin/optim/learning_rate.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/strategy.h"

namespace levin {

/// A handle: copies share the optimizer.
class LEVIN_API PreparedOptimizer : public OptimizerHandle {
 public:
  PreparedOptimizer(std::unique_ptr<optim::Optimizer> optimizer,
                    const std::optional<Schedule>& schedule, int64_t frequency, int64_t total_steps,
                    Strategy* strategy);

  void step() override;
  void zero_grad() override;
  /// Works for the optimizers that were prepared together.
  void toggle() override;
  void untoggle() override;
  void clip_grad_norm(double max_norm) override;
  double learning_rate() const override;

  optim::Optimizer& optimizer() const;
  int64_t frequency() const;
  /// Updates so far.
  int64_t steps() const;
  /// Parameters of the other optimizers that are not its own too, which toggle() freezes.
  void set_rivals(const std::vector<PreparedOptimizer>& all);

  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace levin
