#pragma once
// LearningRate: a schedule at work on one optimizer, whose steps the caller counts.

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

  /// The rates are those of the step that comes after so many.
  void set_steps(int64_t steps);

  /// {"name", "steps"}, after so many steps.
  State state_dict(int64_t steps) const;
  /// The steps of a state. Throws Error "optim.schedule.state" for another schedule's.
  int64_t steps_of(const State& state) const;

 private:
  Optimizer* optimizer_;
  Schedule schedule_;
  int64_t total_steps_;
};

}  // namespace levin::optim
