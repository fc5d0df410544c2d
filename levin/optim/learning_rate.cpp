#include "levin/optim/learning_rate.h"

#include "levin/base/check.h"
#include "levin/optim/optimizer.h"

namespace levin::optim {

LearningRate::LearningRate(Optimizer& optimizer, Schedule schedule, int64_t total_steps)
    : optimizer_(&optimizer), schedule_(std::move(schedule)), total_steps_(total_steps) {
  set_steps(0);
}

void LearningRate::set_steps(int64_t steps) {
  const double factor = schedule_.factor(steps, total_steps_);
  for (ParameterGroup& group : optimizer_->groups()) group.lr = group.initial_lr * factor;
}

State LearningRate::state_dict(int64_t steps) const {
  State state;
  return std::move(state.set("name", schedule_.name).set("steps", steps));
}

int64_t LearningRate::steps_of(const State& state) const {
  LEVIN_CHECK(state.text("name") == schedule_.name, "optim.schedule.state",
              "the state is of schedule '{}', wanted '{}'; resume with the same schedule",
              state.text("name"), schedule_.name);
  return state.integer("steps");
}

}  // namespace levin::optim
