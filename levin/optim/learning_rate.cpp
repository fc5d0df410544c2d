#include "levin/optim/learning_rate.h"

#include "levin/base/check.h"
#include "levin/optim/optimizer.h"

namespace levin::optim {

LearningRate::LearningRate(Optimizer& optimizer, Schedule schedule, int64_t total_steps)
    : optimizer_(&optimizer), schedule_(std::move(schedule)), total_steps_(total_steps) {
  apply();
}

void LearningRate::apply() {
  const double factor = schedule_.factor(steps_, total_steps_);
  for (ParameterGroup& group : optimizer_->groups()) group.lr = group.initial_lr * factor;
}

void LearningRate::step() {
  ++steps_;
  apply();
}

State LearningRate::state_dict() const {
  State state;
  return std::move(state.set("name", schedule_.name).set("steps", steps_));
}

void LearningRate::load_state_dict(const State& state) {
  LEVIN_CHECK(state.text("name") == schedule_.name, "optim.schedule.state",
              "this state is of schedule '{}', wanted '{}'", state.text("name"), schedule_.name);
  steps_ = state.integer("steps");
  apply();
}

}  // namespace levin::optim
