#include "levin/optim/learning_rate.h"

#include <algorithm>
#include <limits>

#include "levin/base/check.h"
#include "levin/optim/optimizer.h"

namespace levin::optim {
namespace {

std::string interval_of(const Schedule& schedule) {
  switch (schedule.interval) {
    case Schedule::Interval::kEpoch:
      return "epoch";
    case Schedule::Interval::kHand:
      return "hand";
    case Schedule::Interval::kStep:
      break;
  }
  return "step";
}

}  // namespace

LearningRate::LearningRate(Optimizer& optimizer, Schedule schedule, int64_t total_steps)
    : optimizer_(&optimizer),
      schedule_(std::move(schedule)),
      total_steps_(total_steps < 0 ? -1 : total_steps / schedule_.frequency) {
  set(0, fresh_plateau());
}

Plateau LearningRate::fresh_plateau() const {
  if (!follows_value()) return {};
  const double worst = std::numeric_limits<double>::infinity();
  Plateau plateau{.best = schedule_.plateau->mode == "min" ? worst : -worst};
  for (const ParameterGroup& group : optimizer_->groups()) plateau.rates.push_back(group.lr);
  return plateau;
}

void LearningRate::set(int64_t intervals, const Plateau& plateau) {
  std::vector<ParameterGroup>& groups = optimizer_->groups();
  if (follows_value()) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].follows_schedule) groups[i].lr = plateau.rates.at(i);
    }
    return;
  }
  const double factor = schedule_.factor(intervals / schedule_.frequency, total_steps_);
  for (ParameterGroup& group : groups) {
    if (group.follows_schedule) group.lr = group.initial_lr * factor;
  }
}

bool LearningRate::is_better(double value, double best) const {
  const PlateauOptions& o = *schedule_.plateau;
  const bool is_relative = o.threshold_mode == "rel";
  if (o.mode == "min")
    return value < (is_relative ? best * (1.0 - o.threshold) : best - o.threshold);
  return value > (is_relative ? best * (o.threshold + 1.0) : best + o.threshold);
}

void LearningRate::check(Plateau& plateau, double value) {
  const PlateauOptions& o = *schedule_.plateau;
  if (is_better(value, plateau.best)) {  // false for a NaN
    plateau.best = value;
    plateau.num_bad_epochs = 0;
  } else {
    plateau.num_bad_epochs += 1;
  }
  if (plateau.cooldown_counter > 0) {
    plateau.cooldown_counter -= 1;
    plateau.num_bad_epochs = 0;
  }
  if (plateau.num_bad_epochs <= o.patience) return;
  for (double& rate : plateau.rates) {
    const double lower = std::max(rate * o.factor, o.min_lr);
    if (rate - lower > o.eps) rate = lower;
  }
  plateau.cooldown_counter = o.cooldown;
  plateau.num_bad_epochs = 0;
  set(0, plateau);
}

State LearningRate::state_dict(int64_t intervals, const Plateau& plateau) const {
  State state;
  state.set("name", schedule_.name).set("steps", intervals);
  // A state without it, as those of earlier releases, counts steps.
  if (schedule_.interval != Schedule::Interval::kStep)
    state.set("interval", interval_of(schedule_));
  if (!follows_value()) return state;
  return std::move(state.set("best", plateau.best)
                       .set("num_bad_epochs", plateau.num_bad_epochs)
                       .set("cooldown_counter", plateau.cooldown_counter));
}

int64_t LearningRate::steps_of(const State& state) const {
  LEVIN_CHECK(state.text("name") == schedule_.name, "optim.schedule.state",
              "the state is of schedule '{}', wanted '{}'; resume with the same schedule",
              state.text("name"), schedule_.name);
  const std::string interval = state.contains("interval") ? state.text("interval") : "step";
  LEVIN_CHECK(interval == interval_of(schedule_), "optim.schedule.state",
              "the state is of a schedule by {}, wanted one by {}; resume with the same schedule",
              interval, interval_of(schedule_));
  return state.integer("steps");
}

Plateau LearningRate::plateau_of(const State& state) const {
  Plateau plateau = fresh_plateau();
  if (!follows_value()) return plateau;
  plateau.best = state.number("best");
  plateau.num_bad_epochs = state.integer("num_bad_epochs");
  plateau.cooldown_counter = state.integer("cooldown_counter");
  return plateau;
}

}  // namespace levin::optim
