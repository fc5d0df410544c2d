#pragma once
// LearningRate: a schedule at work on one optimizer. The caller keeps what changes: the number of
// moves, and the counts of a plateau.

#include <cstdint>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/module/optimizer_config.h"

namespace levin::optim {

class Optimizer;

/// What ReduceLROnPlateau keeps between two checks.
struct Plateau {
  double best = 0.0;             ///< best monitored value so far
  int64_t num_bad_epochs = 0;    ///< checks without improvement since the last improvement
  int64_t cooldown_counter = 0;  ///< checks until bad ones count again
  std::vector<double> rates;     ///< learning rate of each parameter group

  bool operator==(const Plateau&) const = default;
};

class LEVIN_API LearningRate {
 public:
  /// Sets the rates for the first step. total_steps: what the run will take, in steps or in epochs as
  /// the schedule counts; -1 without limit. Throws Error "optim.schedule.total_steps" when the
  /// schedule needs a number and gets -1.
  LearningRate(Optimizer& optimizer, Schedule schedule, int64_t total_steps);

  const Schedule& schedule() const { return schedule_; }
  bool follows_value() const { return schedule_.plateau.has_value(); }
  /// Returns whether it moves with the steps of its optimizer.
  bool moves_by_step() const {
    return !follows_value() && schedule_.interval == Schedule::Interval::kStep;
  }
  /// Returns the counts before the first check, with the optimizer's present rates.
  Plateau fresh_plateau() const;

  /// The rates are those after so many intervals (steps or epochs), or those of the plateau.
  void set(int64_t intervals, const Plateau& plateau);
  /// Counts a monitored value, and lowers the rates if it is time: ReduceLROnPlateau.step.
  void check(Plateau& plateau, double value);

  /// {"name", "steps"}, with "interval" for epochs, and with the counts of a plateau.
  State state_dict(int64_t intervals, const Plateau& plateau) const;
  /// The steps of a state. Throws Error "optim.schedule.state" for another schedule's.
  int64_t steps_of(const State& state) const;
  /// The counts of a plateau in a state, with the optimizer's present rates.
  Plateau plateau_of(const State& state) const;

 private:
  bool is_better(double value, double best) const;

  Optimizer* optimizer_;
  Schedule schedule_;
  int64_t total_steps_;
};

}  // namespace levin::optim
