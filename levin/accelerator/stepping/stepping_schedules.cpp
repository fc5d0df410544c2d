// The learning rate schedules of a step: by optimizer steps, by epochs, or by a value.

#include <ATen/ops/full.h>

#include "levin/accelerator/stepping/stepping.h"
#include "levin/base/check.h"

namespace levin {

void Stepping::step_schedule(size_t optimizer) {
  const optim::LearningRate* schedule = optimizers_[optimizer].schedule;
  LEVIN_CHECK(schedule == nullptr || !schedule->follows_value(), "optim.schedule.value",
              "step_schedule() got no value, but reduce_on_plateau follows '{}'; call "
              "step_schedule(value)",
              schedule->schedule().plateau->monitor);
  if (recording_ != nullptr) recording_->outcome_.schedules.push_back(optimizer);
  move_schedule(optimizer);
}

void Stepping::move_schedule(size_t optimizer) {
  if (optimizers_[optimizer].schedule == nullptr) return;
  if (recording_ != nullptr) recording_->moved_schedules_.insert(optimizer);
  ++state_.optimizers[optimizer].schedule_steps;
  set_rates(optimizer);
}

void Stepping::set_rates(size_t optimizer) {
  const StepState::Optimizer& counts = state_.optimizers[optimizer];
  optimizers_[optimizer].schedule->set(counts.schedule_steps, counts.plateau);
}

void Stepping::check_plateau(size_t optimizer, double value) {
  optim::LearningRate* schedule = optimizers_[optimizer].schedule;
  LEVIN_CHECK(schedule != nullptr && schedule->follows_value(), "optim.schedule.value",
              "step_schedule(value) got {}, but the optimizer's schedule ({}) follows no value; "
              "call step_schedule(), or use reduce_on_plateau",
              value, schedule == nullptr ? "none" : schedule->schedule().name);
  if (recording_ != nullptr) {
    recording()->refuse(
        "it calls step_schedule(value); call that outside of the compiled function");
  }
  if (context_.world.size() > 1) {  // ranks with different values would get different rates
    const at::Tensor of_main = at::full({1}, value, at::kDouble);
    context_.world.broadcast(of_main, 0);
    value = of_main.item<double>();
  }
  StepState::Optimizer& counts = state_.optimizers[optimizer];
  ++counts.schedule_steps;
  schedule->check(counts.plateau, value);
}

void Stepping::check_due_plateaus(
    std::optional<int64_t> epochs,
    const std::function<std::optional<double>(const PlateauOptions&)>& value) {
  const auto wanted = epochs ? Schedule::Interval::kEpoch : Schedule::Interval::kStep;
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    const auto& [optimizer, rate, is_prepared] = optimizers_[i];
    if (rate == nullptr || !is_prepared || !rate->follows_value()) continue;
    const Schedule& schedule = rate->schedule();
    if (schedule.interval != wanted) continue;
    StepState::Optimizer& counts = state_.optimizers[i];
    // By steps the count of checks says whether this one was made: a resumed run asks again.
    const bool is_due = epochs ? *epochs % schedule.frequency == 0
                               : counts.updates / schedule.frequency > counts.schedule_steps;
    if (!is_due) continue;
    if (const std::optional<double> followed = value(*schedule.plateau)) {
      check_plateau(i, *followed);
    } else {
      ++counts.schedule_steps;
    }
  }
}

void Stepping::end_epoch(int64_t epochs) {
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    const auto& [optimizer, schedule, is_prepared] = optimizers_[i];
    if (schedule == nullptr || !is_prepared || schedule->follows_value()) continue;
    if (schedule->schedule().interval != Schedule::Interval::kEpoch) continue;
    state_.optimizers[i].schedule_steps = epochs;
    set_rates(i);
  }
}

}  // namespace levin
