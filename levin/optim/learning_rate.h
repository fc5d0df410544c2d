#pragma once
// LearningRate: a schedule at work on one optimizer, counted in optimizer steps.
// Moved on after each update; saved with the optimizer.

#include <cstdint>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/module/optimizer_config.h"

namespace levin::optim {

class Optimizer;

class LEVIN_API LearningRate {
 public:
  /// Sets the rates for the first step. total_steps: what the run will take, -1 without limit.
  /// Throws Error "optim.schedule.total_steps" when the schedule needs a number and gets -1.
  LearningRate(Optimizer& optimizer, Schedule schedule, int64_t total_steps);

  /// To be called after each optimizer step.
  void step();
  int64_t steps() const { return steps_; }

  /// {"name", "steps"}; another schedule's state throws Error "optim.schedule.state".
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  void apply();

  Optimizer* optimizer_;
  Schedule schedule_;
  int64_t total_steps_;
  int64_t steps_ = 0;
};

}  // namespace levin::optim
