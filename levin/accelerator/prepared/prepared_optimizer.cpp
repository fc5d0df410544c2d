#include "levin/accelerator/prepared/prepared_optimizer.h"

#include <ATen/core/grad_mode.h>

#include <unordered_set>
#include <utility>

#include "levin/base/check.h"

namespace levin {

struct PreparedOptimizer::Shared {
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<optim::LearningRate> schedule;
  int64_t frequency = 1;
  int64_t steps = 0;
  bool skipped = false;
  Stepping* stepping = nullptr;
  std::function<void(OptimizerHandle&)> before_step;
  std::vector<at::Tensor> rivals;  // parameters of the other optimizers alone
  std::vector<at::Tensor> frozen;  // those that toggle() froze
};

PreparedOptimizer::PreparedOptimizer(std::unique_ptr<optim::Optimizer> optimizer,
                                     const std::optional<Schedule>& schedule, int64_t frequency,
                                     int64_t total_steps, Stepping* stepping)
    : shared_(std::make_shared<Shared>()) {
  shared_->optimizer = std::move(optimizer);
  if (schedule) shared_->schedule.emplace(*shared_->optimizer, *schedule, total_steps);
  shared_->frequency = frequency;
  shared_->stepping = stepping;
}

void PreparedOptimizer::step() {
  if (shared_->stepping == nullptr) {
    shared_->optimizer->step();
  } else {
    if (!shared_->stepping->sync_gradients()) return;
    if (shared_->before_step) {
      shared_->stepping->finish_gradients(*shared_->optimizer);
      shared_->before_step(*this);
    }
    shared_->skipped = !shared_->stepping->step(*shared_->optimizer);
    if (shared_->skipped) return;
    if (graph::HostPart* recording = shared_->stepping->recording()) {
      recording->after([self = *this]() mutable { self.count_step(); });
    }
  }
  count_step();
}

at::Tensor PreparedOptimizer::step(const optim::Closure& closure) {
  Stepping* stepping = shared_->stepping;
  optim::Optimizer& optimizer = *shared_->optimizer;
  LEVIN_CHECK(closure != nullptr, "optim.closure", "got an empty closure for {}; call step()",
              optimizer.name());
  at::Tensor first;
  const auto evaluate = [&] {
    const at::AutoGradMode with_gradients(true);
    at::Tensor loss = closure();
    LEVIN_CHECK(loss.defined() && loss.numel() == 1, "optim.closure",
                "the closure given to {} gave no scalar; return the loss", optimizer.name());
    if (!first.defined()) first = loss.detach();
    return loss;
  };
  if (!optimizer.evaluates_losses()) {
    evaluate();
    step();
    return first;
  }
  if (stepping != nullptr) stepping->check_closure(optimizer);
  const auto hook = std::exchange(shared_->before_step, nullptr);  // gradients are there later
  optimizer.set_closure([&] {
    at::Tensor loss = evaluate();
    if (stepping != nullptr) loss = stepping->finish_evaluation(loss);
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
              "{} has not called the closure that its step was given; call backward and step()",
              optimizer.name());
  return first;
}

void PreparedOptimizer::before_step(std::function<void(OptimizerHandle&)> hook) {
  shared_->before_step = std::move(hook);
}

void PreparedOptimizer::count_step() {
  shared_->steps += 1;
  if (shared_->stepping == nullptr || shared_->stepping->moves_schedules()) step_schedule();
}

void PreparedOptimizer::step_schedule() {
  if (shared_->schedule) shared_->schedule->step();
}

bool PreparedOptimizer::step_was_skipped() const { return shared_->skipped; }

void PreparedOptimizer::zero_grad() {
  if (shared_->stepping == nullptr) {
    shared_->optimizer->zero_grad();
  } else {
    shared_->stepping->zero_grad(*shared_->optimizer);
  }
}

void PreparedOptimizer::set_rivals(const std::vector<PreparedOptimizer>& all) {
  shared_->rivals.clear();
  std::unordered_set<const c10::TensorImpl*> own;
  for (const NamedTensor& parameter : optimizer().parameters()) {
    own.insert(parameter.tensor.unsafeGetTensorImpl());
  }
  for (const PreparedOptimizer& other : all) {
    if (other.shared_ == shared_) continue;
    for (const NamedTensor& parameter : other.optimizer().parameters()) {
      const bool rival = !own.contains(parameter.tensor.unsafeGetTensorImpl());
      if (rival) shared_->rivals.push_back(parameter.tensor);
    }
  }
}

void PreparedOptimizer::toggle() {
  untoggle();
  for (const at::Tensor& parameter : shared_->rivals) {
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

double PreparedOptimizer::learning_rate() const {
  const auto now = [optimizer = shared_->optimizer.get()] {
    return optimizer->groups().front().lr;
  };
  if (shared_->stepping != nullptr) shared_->stepping->reads("learning_rate()", now);
  return now();
}

optim::Optimizer& PreparedOptimizer::optimizer() const { return *shared_->optimizer; }
int64_t PreparedOptimizer::frequency() const { return shared_->frequency; }
bool PreparedOptimizer::has_schedule() const { return shared_->schedule.has_value(); }
int64_t PreparedOptimizer::steps() const {
  const auto now = [shared = shared_.get()] { return shared->steps; };
  if (shared_->stepping != nullptr) shared_->stepping->reads("steps()", now);
  return now();
}
int64_t PreparedOptimizer::num_updates() const { return shared_->steps; }

State PreparedOptimizer::state_dict() const {
  State state;
  state.set("optimizer", shared_->optimizer->state_dict()).set("steps", shared_->steps);
  if (shared_->schedule) state.set("schedule", shared_->schedule->state_dict());
  return state;
}

void PreparedOptimizer::load_state_dict(const State& state) {
  shared_->optimizer->load_state_dict(state.child("optimizer"));
  shared_->steps = state.integer("steps");
  if (shared_->schedule) shared_->schedule->load_state_dict(state.child("schedule"));
}

}  // namespace levin
