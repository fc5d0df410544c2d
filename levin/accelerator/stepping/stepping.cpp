#include "levin/accelerator/stepping/stepping.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "levin/base/autocast.h"
#include "levin/base/check.h"
#include "levin/optim/clip.h"

namespace levin {

Stepping::Stepping(Strategy& strategy, const comm::ProcessGroup& world,
                   const SteppingOptions& options)
    : strategy_(&strategy),
      world_(world),
      options_(options),
      guard_(options.loss_guard),
      weights_(world, options.device, options.records) {
  LEVIN_CHECK(options.gradient_accumulation_steps >= 1, "accelerator.accumulate",
              "got gradient_accumulation_steps = {}, wanted at least 1",
              options.gradient_accumulation_steps);
  if (options.scales_loss) {
    scaler_.emplace(options.scaler, [this](bool flag) { return agree(flag); });
  }
}

std::string Stepping::where() const {
  return where_ ? where_() : "batch " + std::to_string(losses_ - 1);
}

bool Stepping::agree(bool flag) { return world_.size() == 1 ? flag : world_.any(flag); }

void Stepping::begin_anew(Strategy& strategy) {
  strategy_ = &strategy;
  load_state_dict(state_dict());  // the scaler knows optimizers by their addresses
  optimizers_.clear();
  in_batch_ = false;
}

void Stepping::drop_group() {
  bad_loss_ = has_noted_ = false;
  synchronizes_ = true;
  position_.cut_short = 1.0;
}

void Stepping::begin_batch(const GroupPlace& place) {
  if (recording_ != nullptr) {
    recording_->refuse("it calls accumulate(): let accumulate() stand around the call");
  }
  if (synchronizes_) {  // the last batch ended a group
    end_short_group();
    batches_ = 0;
    position_.has_gradients = false;
  }
  ++batches_;
  place_ = place;
  in_batch_ = has_grouped_ = true;
  synchronizes_ = place.ends_epoch || batches_ == place.group_size;
  position_.cut_short =
      synchronizes_ ? static_cast<double>(place.group_size) / static_cast<double>(batches_) : 1.0;
  weights_.begin_batch();
}

/// Before gradients of other batches are added to those of a short group: what nobody has stepped
/// with is brought to their scale.
void Stepping::end_short_group() {
  const double factor = std::exchange(position_.cut_short, 1.0);
  if (factor == 1.0) return;
  strategy_->wait_gradients();
  for (const optim::Optimizer* optimizer : optimizers_) {
    if (!position_.finished.contains(optimizer)) {
      optim::scale_grad(optimizer->parameters(), factor);
    }
  }
}

void Stepping::begin_backward() {
  if (!in_batch_) end_short_group();
  if (!position_.has_gradients) weights_.begin_group();
  weighed_ = false;
  group_weight_.reset();
  if (scaler_ && scaler_->has_stepped()) update_scale();
  if (leave_out_) {
    leave_out_.reset();
    bad_loss_ = false;
  }
  position_.finished.clear();
  if (guard_.may_skip() && !std::exchange(has_noted_, true)) note_waiting();
}

void Stepping::note_waiting() {
  waiting_.clear();
  for (const optim::Optimizer* optimizer : optimizers_) {
    for (const NamedTensor& parameter : optimizer->parameters()) {
      const at::Tensor& gradient = parameter.tensor.mutable_grad();
      const bool waits = gradient.defined();
      waiting_.emplace_back(parameter.tensor, waits ? gradient.clone() : at::Tensor());
    }
  }
}

// Of a step that is left out nothing is to come into a later one, which another optimizer takes.
void Stepping::drop_since_noted() {
  for (auto& [parameter, gradient] : std::exchange(waiting_, {})) {
    parameter.mutable_grad() = std::move(gradient);
  }
}

void Stepping::backward(const at::Tensor& loss, bool synchronize) {
  begin_backward();
  ++losses_;
  if (guard_.is_on() && guard_.look(loss, [this] { return where(); })) bad_loss_ = true;
  at::Tensor whole = in_batch_ ? weights_.weighted(loss, place_.group_size) : loss;
  if (scaler_) whole = scaler_->scale(whole);
  // Gradients are computed in the types that the forward pass chose.
  std::optional<AutocastScope> no_autocast;
  const at::DeviceType device = loss.device().type();
  if (current_autocast(device).enabled) no_autocast.emplace(device, Autocast());
  strategy_->backward(whole, synchronize && backward_synchronizes());
  position_.has_gradients = true;
}

void Stepping::join_exchange() {
  begin_backward();
  position_.has_gradients =
      strategy_->backward(at::Tensor(), /*synchronize=*/true, position_.has_gradients);
}

void Stepping::weigh_group() {
  if (std::exchange(weighed_, true) || !in_batch_ || !place_.may_weigh) return;
  group_weight_ = weights_.of_group(place_.group_size);
  if (group_weight_) position_.cut_short = 1.0;
}

void Stepping::end_group() {
  position_.has_gradients = false;
  position_.finished.clear();
  group_weight_.reset();
}

bool Stepping::group_counts() {
  weigh_group();
  return !group_weight_ || !weights_.counts_nothing(*group_weight_);
}

bool Stepping::backward_synchronizes() {
  if (std::exchange(position_.synchronizes_next, false)) return true;
  return unsynchronized_ == 0 && (sync_gradients() || options_.sync_each_batch);
}

void Stepping::finish_gradients(const optim::Optimizer& optimizer) {
  weigh_group();
  if (!needs_finish() || !position_.finished.insert(&optimizer).second) return;
  strategy_->wait_gradients();
  if (group_weight_) optim::divide_grad(optimizer.parameters(), *group_weight_);
  if (position_.cut_short != 1.0) {
    optim::scale_grad(optimizer.parameters(), position_.cut_short);
  }
  if (scaler_) scaler_->unscale(optimizer);
}

bool Stepping::step(optim::Optimizer& optimizer) {
  if (!sync_gradients()) return false;
  LEVIN_CHECK(
      in_batch_ || synchronizes_, "accelerator.step",
      "a step after {} of the {} batches of a group; step while the scope that accumulate() "
      "gave is there, where the steps in between do nothing",
      batches_, options_.gradient_accumulation_steps);
  finish_gradients(optimizer);
  if (guard_.may_skip() && !leave_out_) leave_out_ = agree(bad_loss_);
  has_noted_ = false;
  position_.used_up.insert(&optimizer);
  bool taken = false;
  const auto take = [&] {
    if (leave_out_.value_or(false)) {
      strategy_->wait_gradients();
      return drop_since_noted();
    }
    update(optimizer);
    forget_casts();  // of the parameters as they were
    taken = true;
  };
  if (scaler_) {
    scaler_->step(optimizer, take);
  } else {
    take();
  }
  position_.was_left_out = !taken;
  has_stepped_ = true;
  if (taken && after_step_) after_step_(optimizer);
  return taken;
}

void Stepping::check_closure(const optim::Optimizer& optimizer) const {
  const std::string_view what = accumulates() ? "gradient accumulation"
                                : scaler_     ? "the loss scale of 16-mixed"
                                : guard_.may_skip()
                                    ? "steps that nan_policy or spike_policy leave out"
                                    : "";
  LEVIN_CHECK(what.empty(), "optim.closure",
              "{} computes the loss several times in a step, which does not go with {}; leave that "
              "out, or use another optimizer",
              optimizer.name(), what);
}

// Ranks that see different losses would take different steps.
at::Tensor Stepping::finish_evaluation(const at::Tensor& loss) {
  strategy_->wait_gradients();
  if (world_.size() == 1) return loss;
  const at::Tensor mean = loss.detach().to(at::kCPU, at::kDouble).clone();
  world_.all_reduce(mean, ReduceOp::kMean);
  return mean.to(loss.options());
}

void Stepping::update(optim::Optimizer& optimizer) {
  const bool is_recorded = recording_ != nullptr && optimizer.set_capturable(true);
  strategy_->update(optimizer);
  if (recording_ == nullptr) return;
  if (is_recorded) {
    recording_->before(optimizer.host_part(), optimizer.host_part_undone());
    recording_->after([&optimizer] { optimizer.replayed(); });
    return;
  }
  recording_->refuse(optimizer.name() +
                     " computes on the host in each step; levin::optim's sgd, adam and adamw do "
                     "not");
}

void Stepping::clip_grad_norm(const optim::Optimizer& optimizer, double max_norm) {
  finish_gradients(optimizer);
  strategy_->clip_grad_norm(optimizer.parameters(), max_norm, 2.0);
}

void Stepping::clip_gradients(const optim::Optimizer& optimizer, double clip_val,
                              std::string_view algorithm) {
  if (clip_val == 0.0) return;
  if (algorithm != "value") return clip_grad_norm(optimizer, clip_val);
  finish_gradients(optimizer);
  strategy_->wait_gradients();
  optim::clip_grad_value(optimizer.parameters(), clip_val);
}

void Stepping::zero_grad(optim::Optimizer& optimizer) {
  if (accumulates() && position_.used_up.erase(&optimizer) == 0) return;
  optimizer.zero_grad();
}

// Gradients that wait for later batches were scaled by the old one.
void Stepping::update_scale() {
  std::vector<optim::Optimizer*> waiting;
  for (optim::Optimizer* optimizer : optimizers_) {
    if (!scaler_->is_unscaled(*optimizer)) waiting.push_back(optimizer);
  }
  const double before = scaler_->get_scale();
  scaler_->update();
  const double factor = scaler_->get_scale() / before;
  if (factor == 1.0) return;
  for (optim::Optimizer* optimizer : waiting) optim::scale_grad(optimizer->parameters(), factor);
}

Stepping::RecordingScope::RecordingScope(Stepping& stepping, graph::HostPart& recording)
    : stepping_(stepping) {
  stepping_.recording_ = &recording;
  stepping_.has_stepped_ = false;
  stepping_.has_recorded_ = true;
}

// Where steps stand after a replay is where they stood after what it is a replay of.
Stepping::RecordingScope::~RecordingScope() {
  graph::HostPart& recording = *std::exchange(stepping_.recording_, nullptr);
  recording.after(
      [&stepping = stepping_, after = stepping_.position_] { stepping.position_ = after; });
}

void Stepping::reads(const char* what, std::function<graph::ExactNumber()> number) const {
  if (recording_ == nullptr) return;
  if (has_stepped_) {
    return recording_->refuse(std::string("it reads ") + what + " after a step; read it before");
  }
  recording_->depends_on(what, std::move(number));
}

void Stepping::add_guards(std::vector<graph::Guard>& guards) const {
  const auto add = [&](std::string_view what, auto value) {
    guards.push_back({what, static_cast<double>(value)});
  };
  add("whether it is a batch of a group", in_batch_);
  add("whether the batch ends its group", synchronizes_);
  add("batches of the group", place_.group_size);
  add("whether the group of batches has begun", in_batch_ && position_.has_gradients);
  add("no_sync", unsynchronized_);
  add("trigger_sync_in_backward", position_.synchronizes_next);
  add("by what a group was cut short", position_.cut_short);
  for (const optim::Optimizer* optimizer : optimizers_) {
    add("whether gradients were stepped with", position_.used_up.contains(optimizer));
    add("whether gradients are complete", position_.finished.contains(optimizer));
  }
}

State Stepping::state_dict() {
  State state;
  if (scaler_) {
    if (scaler_->has_stepped()) update_scale();
    state.set("scaler", scaler_->state_dict());
  }
  if (guard_.is_on()) state.set("loss_guard", guard_.state_dict());
  return state;
}

void Stepping::load_state_dict(const State& state) {
  position_ = {};
  waiting_.clear();
  drop_group();
  if (scaler_ && state.contains("scaler")) scaler_->load_state_dict(state.child("scaler"));
  if (state.contains("loss_guard")) guard_.load_state_dict(state.child("loss_guard"));
}

}  // namespace levin
