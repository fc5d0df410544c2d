#include <ATen/core/grad_mode.h>

#include <unordered_set>
#include <utility>

#include "levin/accelerator/prepared/make_prepared_optimizer.h"
#include "levin/base/check.h"
#include "levin/optim/learning_rate.h"

namespace levin {

struct PreparedOptimizer::Shared {
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<optim::LearningRate> schedule;
  int64_t frequency;
  std::shared_ptr<Stepping> stepping;
  size_t number = 0;  ///< in the engine
  std::function<void(OptimizerHandle&)> before_step = nullptr;
  std::vector<at::Tensor> only_in_others = {};  // parameters that toggle() freezes
  std::vector<at::Tensor> frozen = {};          // parameters that toggle() froze

  const StepState::Optimizer& counts() const { return stepping->state().optimizers[number]; }
};

PreparedOptimizer make_prepared_optimizer(std::unique_ptr<optim::Optimizer> optimizer,
                                          const std::optional<Schedule>& schedule,
                                          int64_t frequency, int64_t total_steps,
                                          std::shared_ptr<Stepping> stepping) {
  auto shared = std::make_shared<PreparedOptimizer::Shared>(std::move(optimizer), std::nullopt,
                                                            frequency, std::move(stepping));
  if (schedule) shared->schedule.emplace(*shared->optimizer, *schedule, total_steps);
  shared->number =
      shared->stepping->add(*shared->optimizer, shared->schedule ? &*shared->schedule : nullptr);
  return PreparedOptimizer(std::move(shared));
}

void PreparedOptimizer::step() {
  Stepping& stepping = *shared_->stepping;
  if (!stepping.sync_gradients()) return;
  if (shared_->before_step) {
    stepping.finish_gradients(*shared_->optimizer);
    shared_->before_step(*this);
  }
  stepping.step(*shared_->optimizer);
}

at::Tensor PreparedOptimizer::step(const optim::Closure& closure) {
  Stepping& stepping = *shared_->stepping;
  optim::Optimizer& optimizer = *shared_->optimizer;
  LEVIN_CHECK(closure != nullptr, "optim.closure",
              "got an empty closure for {}; give one, or call step()", optimizer.name());
  at::Tensor first;
  const auto evaluate = [&] {
    const at::AutoGradMode with_gradients(true);
    at::Tensor loss = closure();
    LEVIN_CHECK(loss.defined() && loss.numel() == 1, "optim.closure",
                "the closure given to {} did not return a scalar; return the loss",
                optimizer.name());
    if (!first.defined()) first = loss.detach();
    return loss;
  };
  if (!optimizer.evaluates_losses()) {
    evaluate();
    step();
    return first;
  }
  stepping.check_closure(optimizer);
  const auto hook = std::exchange(shared_->before_step, nullptr);  // gradients are there later
  optimizer.set_closure([&] {
    at::Tensor loss = stepping.finish_evaluation(evaluate());
    if (hook) hook(*this);
    return loss;
  });
  const auto end = [&] {
    optimizer.set_closure(nullptr);
    shared_->before_step = hook;
  };
  try {
    step();
  } catch (...) {
    end();
    throw;
  }
  end();
  LEVIN_CHECK(first.defined(), "optim.closure",
              "{} did not call the closure given to step; call backward and then step()",
              optimizer.name());
  return first;
}

void PreparedOptimizer::before_step(std::function<void(OptimizerHandle&)> hook) {
  shared_->before_step = std::move(hook);
}

void PreparedOptimizer::step_schedule() { shared_->stepping->step_schedule(shared_->number); }
void PreparedOptimizer::step_schedule(double value) {
  shared_->stepping->check_plateau(shared_->number, value);
}
bool PreparedOptimizer::step_was_skipped() const { return shared_->counts().was_skipped; }
void PreparedOptimizer::zero_grad() { shared_->stepping->zero_grad(*shared_->optimizer); }

void prepare_toggle(const std::vector<PreparedOptimizer>& all) {
  for (const PreparedOptimizer& one : all) {
    std::unordered_set<const c10::TensorImpl*> own;
    for (const NamedTensor& parameter : one.optimizer().parameters()) {
      own.insert(parameter.tensor.unsafeGetTensorImpl());
    }
    one.shared_->only_in_others.clear();
    for (const PreparedOptimizer& other : all) {
      if (other.shared_ == one.shared_) continue;
      for (const NamedTensor& parameter : other.optimizer().parameters()) {
        if (own.contains(parameter.tensor.unsafeGetTensorImpl())) continue;
        one.shared_->only_in_others.push_back(parameter.tensor);
      }
    }
  }
}

void PreparedOptimizer::toggle() {
  untoggle();
  for (const at::Tensor& parameter : shared_->only_in_others) {
    if (!parameter.requires_grad()) continue;
    parameter.set_requires_grad(false);
    shared_->frozen.push_back(parameter);
  }
}

void PreparedOptimizer::untoggle() {
  for (const at::Tensor& parameter : std::exchange(shared_->frozen, {})) {
    parameter.set_requires_grad(true);
  }
}

void PreparedOptimizer::clip_grad_norm(double max_norm) {
  shared_->stepping->clip_grad_norm(*shared_->optimizer, max_norm);
}

void PreparedOptimizer::clip_grad_value(double clip_value) {
  shared_->stepping->clip_gradients(*shared_->optimizer, clip_value, "value");
}

double PreparedOptimizer::learning_rate() const {
  const auto now = [optimizer = shared_->optimizer.get()] {
    return optimizer->groups().front().lr;
  };
  shared_->stepping->reads("learning_rate()", now);
  return now();
}

optim::Optimizer& PreparedOptimizer::optimizer() const { return *shared_->optimizer; }
int64_t PreparedOptimizer::frequency() const { return shared_->frequency; }
bool PreparedOptimizer::has_schedule() const { return shared_->schedule.has_value(); }
const Schedule* PreparedOptimizer::schedule() const {
  return shared_->schedule ? &shared_->schedule->schedule() : nullptr;
}
int64_t PreparedOptimizer::steps() const {
  shared_->stepping->reads("steps()", [self = *this] { return self.num_updates(); });
  return num_updates();
}
int64_t PreparedOptimizer::num_updates() const { return shared_->counts().updates; }

State PreparedOptimizer::state_dict() const {
  State state;
  state.set("optimizer", shared_->optimizer->state_dict()).set("steps", num_updates());
  if (shared_->schedule) {
    const StepState::Optimizer& counts = shared_->counts();
    state.set("schedule", shared_->schedule->state_dict(counts.schedule_steps, counts.plateau));
  }
  return state;
}

void PreparedOptimizer::load_state_dict(const State& state) {
  shared_->optimizer->load_state_dict(state.child("optimizer"));
  int64_t schedule_steps = 0;
  optim::Plateau plateau;
  if (shared_->schedule) {
    schedule_steps = shared_->schedule->steps_of(state.child("schedule"));
    plateau = shared_->schedule->plateau_of(state.child("schedule"));
  }
  shared_->stepping->load_counts(shared_->number, state.integer("steps"), schedule_steps,
                                 std::move(plateau));
}

}  // namespace levin
