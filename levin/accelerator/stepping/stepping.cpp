#include "levin/accelerator/stepping/stepping.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <utility>

#include "levin/base/autocast.h"
#include "levin/base/check.h"
#include "levin/optim/optim.h"

namespace levin {

Stepping::Stepping(Strategy& strategy, const comm::ProcessGroup& world,
                   const SteppingOptions& options)
    : context_{&strategy, world, options},
      weights_(world, options.device, options.records, state_.weighing) {
  LEVIN_CHECK(options.gradient_accumulation_steps >= 1, "accelerator.accumulate",
              "got gradient_accumulation_steps = {}, wanted at least 1",
              options.gradient_accumulation_steps);
  state_.loss_guard = LossGuard(options.loss_guard);
  if (options.scales_loss) {
    state_.scaler.emplace(options.scaler, [this](bool flag) { return agree(flag); });
  }
}

size_t Stepping::add(optim::Optimizer& optimizer, optim::LearningRate* schedule) {
  optimizers_.push_back({&optimizer, schedule});
  state_.optimizers.emplace_back();
  if (schedule != nullptr) state_.optimizers.back().plateau = schedule->fresh_plateau();
  state_.place.optimizers.emplace_back();
  return optimizers_.size() - 1;
}

void Stepping::begin_anew(Strategy& strategy, bool sync_each_batch) {
  context_.strategy = &strategy;
  context_.options.sync_each_batch = sync_each_batch;
  load_state_dict(state_dict());  // the scaler knows optimizers by their addresses
  for (Driven& optimizer : optimizers_) optimizer.is_prepared = false;
  end_batch();
}

size_t Stepping::number_of(const optim::Optimizer& optimizer) const {
  const auto found =
      std::find_if(optimizers_.rbegin(), optimizers_.rend(),
                   [&](const Driven& driven) { return driven.optimizer == &optimizer; });
  TORCH_INTERNAL_ASSERT(found != optimizers_.rend(), optimizer.name(), " was not added");
  return static_cast<size_t>(optimizers_.rend() - found) - 1;
}

bool Stepping::agree(bool flag) {
  return context_.world.size() == 1 ? flag : context_.world.any(flag);
}

std::string Stepping::where() const {
  return context_.options.where ? context_.options.where()
                                : "batch " + std::to_string(state_.losses - 1);
}

void Stepping::begin_batch(const WindowPlace& place) {
  if (recording_ != nullptr) {
    recording()->refuse("it calls accumulate(); call that outside of the compiled function");
  }
  AccumulationWindow& window = state_.place.window;
  if (window.is_complete) {
    end_short_window();
    state_.batches = 0;
    window.has_gradients = false;
  }
  ++state_.batches;
  window.size = place.window_size;
  window.divisor = place.divisor;
  window.may_weigh = place.may_weigh;
  window.in_batch = state_.has_windows = true;
  window.is_complete = place.ends_epoch || state_.batches == place.window_size;
  window.cut_short = window.is_complete ? static_cast<double>(place.window_size) /
                                              static_cast<double>(state_.batches)
                                        : 1.0;
  weights_.begin_batch();
}

/// Scales the pending gradients of a short window, before gradients of other batches are added.
void Stepping::end_short_window() {
  const double factor = std::exchange(state_.place.window.cut_short, 1.0);
  if (factor == 1.0) return;
  strategy().wait_gradients();
  for_each_optimizer([&](const optim::Optimizer& optimizer, size_t number) {
    if (!state_.place.optimizers[number].are_finished) {
      optim::scale_grad(optimizer.parameters(), factor);
    }
  });
}

void Stepping::begin_backward() {
  AccumulationWindow& window = state_.place.window;
  if (!window.in_batch) end_short_window();
  if (!window.has_gradients) weights_.begin_window();
  window.is_weighed = false;
  weights_.forget_window();
  if (state_.scaler && state_.scaler->has_stepped()) update_scale();
  if (state_.leaves_out) {
    state_.leaves_out.reset();
    state_.is_bad = false;
  }
  for (StepPlace::Gradients& gradients : state_.place.optimizers) gradients.are_finished = false;
  if (state_.loss_guard.may_skip() && waiting_.empty()) note_waiting();
}

void Stepping::note_waiting() {
  for_each_optimizer([&](const optim::Optimizer& optimizer, size_t) {
    for (const NamedTensor& parameter : optimizer.parameters()) {
      const at::Tensor& gradient = parameter.tensor.mutable_grad();
      const bool waits = gradient.defined();
      waiting_.emplace_back(parameter.tensor, waits ? gradient.clone() : at::Tensor());
    }
  });
}

// No gradient of a step that is left out is to come into a later one, which another optimizer takes.
void Stepping::drop_since_noted() {
  for (auto& [parameter, gradient] : std::exchange(waiting_, {})) {
    parameter.mutable_grad() = std::move(gradient);
  }
}

void Stepping::backward(const at::Tensor& loss, bool synchronize) {
  begin_backward();
  ++state_.losses;
  if (state_.loss_guard.is_on()) {
    const LossGuard::Verdict verdict = state_.loss_guard.look(loss, [this] { return where(); });
    state_.is_bad |= verdict != LossGuard::Verdict::kTake;
    state_.wants_rollback |= verdict == LossGuard::Verdict::kRollBack;
  }
  AccumulationWindow& window = state_.place.window;
  at::Tensor whole = window.in_batch ? weights_.weighted(loss, window.size, window.divisor) : loss;
  if (state_.scaler) whole = state_.scaler->scale(whole);
  std::optional<AutocastScope> no_autocast;  // the forward pass has chosen the types
  const at::DeviceType device = loss.device().type();
  if (current_autocast(device).enabled) no_autocast.emplace(device, Autocast());
  strategy().backward(whole, synchronize && backward_synchronizes());
  window.has_gradients = true;
}

void Stepping::join_exchange() {
  begin_backward();
  bool& has_gradients = state_.place.window.has_gradients;
  has_gradients = strategy().backward(at::Tensor(), /*synchronize=*/true, has_gradients);
}

bool Stepping::backward_synchronizes() {
  if (std::exchange(state_.place.synchronizes_next, false)) return true;
  return state_.place.no_sync == 0 && (sync_gradients() || context_.options.sync_each_batch);
}

void Stepping::weigh_window() {
  AccumulationWindow& window = state_.place.window;
  if (std::exchange(window.is_weighed, true) || !window.in_batch || !window.may_weigh) return;
  if (weights_.weigh_window(window.size)) window.cut_short = 1.0;
}

bool Stepping::window_counts() {
  weigh_window();
  return !weights_.of_window() || !weights_.counts_nothing(*weights_.of_window());
}

bool Stepping::needs_finish() const {
  return state_.scaler || state_.place.window.cut_short != 1.0 || weights_.of_window();
}

void Stepping::finish_gradients(const optim::Optimizer& optimizer) {
  weigh_window();
  bool& are_finished = state_.place.optimizers[number_of(optimizer)].are_finished;
  if (!needs_finish() || std::exchange(are_finished, true)) return;
  strategy().wait_gradients();
  if (weights_.of_window()) optim::divide_grad(optimizer.parameters(), *weights_.of_window());
  const double cut_short = state_.place.window.cut_short;
  if (cut_short != 1.0) optim::scale_grad(optimizer.parameters(), cut_short);
  if (state_.scaler) state_.scaler->unscale(optimizer);
}

void Stepping::clip_grad_norm(const optim::Optimizer& optimizer, double max_norm) {
  finish_gradients(optimizer);
  strategy().clip_grad_norm(optimizer.parameters(), max_norm, 2.0);
}

void Stepping::clip_gradients(const optim::Optimizer& optimizer, double clip_val,
                              std::string_view algorithm) {
  if (clip_val == 0.0) return;
  if (algorithm != "value") return clip_grad_norm(optimizer, clip_val);
  finish_gradients(optimizer);
  strategy().wait_gradients();
  optim::clip_grad_value(optimizer.parameters(), clip_val);
}

bool Stepping::leaves_out() {
  if (state_.loss_guard.may_skip() && !state_.leaves_out) state_.leaves_out = agree(state_.is_bad);
  return state_.leaves_out.value_or(false);
}

bool Stepping::step(optim::Optimizer& optimizer) {
  if (!sync_gradients()) return false;
  const AccumulationWindow& window = state_.place.window;
  LEVIN_CHECK(
      window.in_batch || window.is_complete, "accelerator.step",
      "step() was called after {} of the {} batches of an accumulation window; call it within the "
      "scope of accumulate(), in which it does nothing until the window is complete",
      state_.batches, accumulation_steps());
  finish_gradients(optimizer);
  ++state_.calls;
  const size_t number = number_of(optimizer);
  state_.place.optimizers[number].are_used_up = true;
  bool taken = false;
  const bool is_left_out = leaves_out();
  if (is_left_out) {
    strategy().wait_gradients();
    drop_since_noted();
  }
  const auto take = [&] {
    if (is_left_out) return;
    update(optimizer);
    forget_casts();  // casts of the old parameters
    taken = true;
  };
  if (state_.scaler) {
    state_.scaler->step(optimizer, take);
  } else {
    take();
  }
  waiting_.clear();
  state_.was_left_out = state_.optimizers[number].was_skipped = !taken;
  if (!taken) return false;
  if (context_.options.after_step) context_.options.after_step(optimizer);
  count_update(number);
  return true;
}

void Stepping::update(optim::Optimizer& optimizer) {
  const bool is_recorded = recording_ != nullptr && optimizer.set_capturable(true);
  const size_t number = number_of(optimizer);
  if (recording_ != nullptr && recording_->moved_schedules_.contains(number)) {
    recording()->refuse(
        "a schedule moves before a step of its optimizer; take one step of it in each call, and "
        "call step_schedule() after the step");
  }
  state_.is_updating = true;
  strategy().update(optimizer);
  state_.is_updating = false;
  if (is_recorded) {
    recording_->outcome_.updates.push_back({.optimizer = number, .moved = optimizer.moved()});
    // before_replay() passes over those of an earlier prepare.
    if (!optimizers_[number].is_prepared) {
      recording()->before([&optimizer] { optimizer.before_replay(); });
    }
  } else if (recording_ != nullptr) {
    recording()->refuse(optimizer.name() +
                        " computes on the host in each step; levin::optim's sgd, adam and adamw do "
                        "not");
  }
}

void Stepping::count_update(size_t optimizer) {
  ++state_.optimizers[optimizer].updates;
  const optim::LearningRate* schedule = optimizers_[optimizer].schedule;
  if (schedule != nullptr && schedule->moves_by_step() && moves_schedules()) {
    move_schedule(optimizer);
  }
}

void Stepping::zero_grad(optim::Optimizer& optimizer) {
  bool& are_used_up = state_.place.optimizers[number_of(optimizer)].are_used_up;
  if (accumulates() && !std::exchange(are_used_up, false)) return;
  optimizer.zero_grad();
}

void Stepping::end_window(bool counts) {
  state_.steps += counts ? 1 : 0;
  if (state_.scaler) state_.scaler->forget_unstepped();
  state_.place.window.has_gradients = false;
  for (StepPlace::Gradients& gradients : state_.place.optimizers) gradients.are_finished = false;
  weights_.forget_window();
}

void Stepping::drop_window() {
  state_.is_bad = state_.wants_rollback = false;
  waiting_.clear();
  state_.place.window.is_complete = true;
  state_.place.window.cut_short = 1.0;
}

// Gradients that wait for later batches were scaled by the old one.
void Stepping::update_scale() {
  std::vector<optim::Optimizer*> waiting;
  for_each_optimizer([&](optim::Optimizer& optimizer, size_t) {
    if (!state_.scaler->is_unscaled(optimizer)) waiting.push_back(&optimizer);
  });
  const double before = state_.scaler->get_scale();
  state_.scaler->update();
  const double factor = state_.scaler->get_scale() / before;
  if (factor == 1.0) return;
  for (optim::Optimizer* optimizer : waiting) optim::scale_grad(optimizer->parameters(), factor);
}

void Stepping::check_closure(const optim::Optimizer& optimizer) const {
  const std::string_view what = accumulates()   ? "gradient accumulation"
                                : state_.scaler ? "the loss scale of 16-mixed"
                                : state_.loss_guard.may_skip()
                                    ? "steps that nan_policy or spike_policy leave out"
                                    : "";
  LEVIN_CHECK(what.empty(), "optim.closure",
              "{} computes the loss several times per step, which does not work with {}; leave "
              "that out, or use another optimizer",
              optimizer.name(), what);
}

// Ranks that see different losses would take different steps.
at::Tensor Stepping::finish_evaluation(const at::Tensor& loss) {
  strategy().wait_gradients();
  if (context_.world.size() == 1) return loss;
  const at::Tensor mean = loss.detach().to(at::kCPU, at::kDouble).clone();
  context_.world.all_reduce(mean, ReduceOp::kMean);
  return mean.to(loss.options());
}

StepState Stepping::snapshot() const {
  StepState copy = state_;
  copy.random.emplace(context_.options.device);
  return copy;
}

void Stepping::restore(const StepState& snapshot) {
  state_ = snapshot;
  if (const auto random = std::exchange(state_.random, std::nullopt)) random->go_back();
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    if (optimizers_[i].schedule != nullptr) set_rates(i);
  }
  waiting_.clear();
}

State Stepping::state_dict() {
  if (state_.scaler && state_.scaler->has_stepped()) update_scale();
  return state_.state_dict();
}

void Stepping::load_state_dict(const State& state) {
  waiting_.clear();
  state_.load_state_dict(state);
}

void Stepping::load_counts(size_t optimizer, int64_t updates, int64_t schedule_steps,
                           optim::Plateau plateau) {
  StepState::Optimizer& counts = state_.optimizers[optimizer];
  counts = {.updates = updates, .schedule_steps = schedule_steps, .plateau = std::move(plateau)};
  if (optimizers_[optimizer].schedule != nullptr) set_rates(optimizer);
}

Stepping::RecordingScope::RecordingScope(Stepping& stepping, graph::HostPart& recording)
    : stepping_(stepping), host_part_(recording) {
  outcome_.losses = -stepping.state_.losses;
  outcome_.steps = -stepping.state_.steps;
  stepping.state_.has_recorded = true;
  stepping.recording_ = this;
}

Stepping::RecordingScope::~RecordingScope() {
  stepping_.recording_ = nullptr;
  outcome_.place = stepping_.state_.place;
  outcome_.losses += stepping_.state_.losses;
  outcome_.steps += stepping_.state_.steps;
  for (Outcome::Update& update : outcome_.updates) {
    update.written = stepping_.optimizers_[update.optimizer].optimizer->written();
  }
  host_part_.after([&stepping = stepping_, outcome = outcome_] { stepping.replayed(outcome); });
}

void Stepping::replayed(const Outcome& outcome) {
  state_.place = outcome.place;
  state_.losses += outcome.losses;
  state_.steps += outcome.steps;
  for (const auto& [number, moved, written] : outcome.updates) {
    optimizers_[number].optimizer->replayed(moved);
    optimizers_[number].optimizer->note_written(written);
    state_.was_left_out = state_.optimizers[number].was_skipped = false;
    ++state_.calls;
    count_update(number);
  }
  for (const size_t number : outcome.schedules) move_schedule(number);
}

void Stepping::before_replay() {
  for_each_optimizer([](optim::Optimizer& optimizer, size_t) { optimizer.before_replay(); });
}

void Stepping::reads(const char* what, std::function<graph::ExactNumber()> number) const {
  if (recording_ == nullptr) return;
  const Outcome& outcome = recording_->outcome_;
  if (!outcome.updates.empty() || !outcome.schedules.empty()) {
    return recording()->refuse(std::string("it reads ") + what + " after a step; read it before");
  }
  recording()->depends_on(what, std::move(number));
}

}  // namespace levin
