#include "levin/strategy/ddp/ddp.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/compile/host_part.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/presence.h"
#include "levin/strategy/strategies.h"

namespace levin {
namespace ddp {

Ddp::Ddp(std::string_view name, const StrategyContext& context)
    : Strategy(name, context.group),
      group_(context.group),
      options_(context.ddp),
      by_operators_(context.recordable || context.xla != nullptr) {}

void Ddp::setup(torch::nn::Module& module, at::Device device, InitValues values) {
  // The ranks agree on the CPU, where XLA's tensors come from.
  const at::Device first = device.is_xla() ? at::Device(at::kCPU) : device;
  if (by_operators_ && group_.size() == 1) {
    if (is_on_meta(module)) materialize(module, {.device = first, .values = values});
    return module.to(device);
  }
  place_as_first(group_, module, first, values);
  module.to(device);
  ranks_agree_ = !device.is_xla();
  Part& part = part_of(module);
  LEVIN_CHECK(!options_.overlap_update || parts_.size() == 1, "strategy.ddp.options",
              "--ddp-overlap-update supports one module, but this is the second; leave the flag "
              "out, or put both modules into one");
  part.reducer.reset();
  part.parameters = own_parameters(module);
  part.reducer = std::make_unique<Reducer>(group_, part.parameters, options_, make_carrier(device),
                                           ranks_agree_);
  std::vector<const torch::nn::Module*> modules;
  for (const Part& each : parts_) modules.push_back(each.module);
  buffers_ = Buffers(modules);
}

std::unique_ptr<Carrier> Ddp::make_carrier(at::Device device) const {
  const ReduceOp op = options_.gradient_reduction == "sum" ? ReduceOp::kSum : ReduceOp::kMean;
  return by_operators_ ? make_operator_carrier(group_, op, /*overlaps=*/!device.is_xla())
                       : make_packed_carrier(group_, op);
}

std::unique_ptr<optim::Optimizer> Ddp::build_optimizer(const OptimizerConfig& config,
                                                       std::vector<NamedTensor> parameters) {
  for (Part& part : parts_) part.cut_optimizer = nullptr;
  auto optimizer = optim::build_optimizer(config, std::move(parameters));
  const std::vector<int64_t> one_wave(optimizer->parameters().size(), 0);
  LEVIN_CHECK(!options_.overlap_update || optimizer->set_waves(one_wave), "strategy.ddp.options",
              "--ddp-overlap-update updates some parameters before others, but {} can only update "
              "all at once; leave it out, or use optim::sgd, adam or adamw with float32 parameters",
              optimizer->name());
  return optimizer;
}

bool Ddp::backward(const at::Tensor& loss, bool synchronize, bool has_gradients) {
  wait_gradients();
  LEVIN_CHECK(loss.defined() || !by_operators_, "strategy.skipped_batch",
              "training_step returned no loss for the last batch of an accumulation window, but "
              "strategy '{}' needs one when steps are recorded on several ranks; return a loss of "
              "weight 0 (see set_loss_weight), or set --compile no",
              name());
  if (!loss.defined()) return join_backward(has_gradients);
  if (synchronize) begin_exchange();
  begin_parts(synchronize);
  levin::backward(loss);
  for (Part& part : parts_) part.reducer->end();
  if (synchronize) finish();
  return true;
}

void Ddp::wait_gradients() {
  for (Part& part : parts_) {
    if (!std::exchange(part.pending, false)) continue;
    check_started(part);
    if (!std::exchange(part.settled, false)) part.reducer->settle_all();
    part.reducer->finish();
  }
}

void Ddp::update(optim::Optimizer& optimizer) {
  for (Part& part : parts_) part.reducer->check_backward(name());
  step(optimizer);
  if (std::exchange(buffers_differ_, false) || by_operators_) synchronize_buffers();
}

void Ddp::synchronize_buffers() {
  if (!options_.broadcast_buffers) return;
  by_operators_ ? buffers_.broadcast(group_) : buffers_.synchronize(group_);
}

/// Not in the middle of a step: a backward that is yet to come may need what its forward pass
/// has saved of them.
void Ddp::meet(Meeting meeting) {
  if (meeting == Meeting::kAgreeOnBuffers) synchronize_buffers();
}

State Ddp::state_dict() const {
  State state;
  size_t number = 0;
  for (const Part& part : parts_) {
    state.set(std::to_string(number++), part.reducer->state_dict());
  }
  return state;
}

void Ddp::load_state_dict(const State& state) {
  size_t number = 0;
  for (Part& part : parts_) {
    const std::string key = std::to_string(number++);
    if (state.contains(key)) part.reducer->load_state_dict(state.child(key));
  }
}

Ddp::Part& Ddp::part_of(const torch::nn::Module& module) {
  for (Part& part : parts_) {
    if (part.module == &module) return part;
  }
  return parts_.emplace_back(Part{&module});
}

/// A parameter that two modules share is reduced with the first of them.
std::vector<NamedTensor> Ddp::own_parameters(const torch::nn::Module& module) const {
  std::vector<NamedTensor> taken;
  for (const Part& part : parts_) {
    if (part.module == &module) continue;
    taken.insert(taken.end(), part.parameters.begin(), part.parameters.end());
  }
  return parameters_apart_from(taken, module);
}

/// Ranks exchange the same buckets in the same order. With several modules, a rank that has no loss
/// or whose backward leaves parameters out does not know which buckets the others have begun with.
/// So no bucket starts before backward is over.
void Ddp::begin_parts(bool synchronize) {
  for (Part& part : parts_) part.reducer->begin(synchronize, /*overlaps=*/parts_.size() == 1);
}

/// This rank has no loss, and what the others' backward waits for.
bool Ddp::join_backward(bool has_gradients) {
  begin_exchange();
  begin_parts(true);
  for (Part& part : parts_) part.reducer->end();
  launch_rest(touched_anywhere(has_gradients), has_gradients);
  bool has_some = false;
  for (Part& part : parts_) {
    if (!part.pending) continue;
    part.settled = true;
    part.pending = part.reducer->settle_all();
    has_some |= part.pending;
  }
  if (!options_.overlap_update) wait_gradients();
  return has_some;
}

void Ddp::exchange_nothing() {
  begin_parts(true);
  for (Part& part : parts_) part.reducer->end();
  finish();
}

void Ddp::step(optim::Optimizer& optimizer) {
  const bool in_waves =
      parts_.size() == 1 && parts_[0].pending && !parts_[0].settled && cut_in_waves(optimizer);
  if (!in_waves) {
    wait_gradients();
    return optimizer.step();
  }
  Part& part = parts_[0];
  part.pending = false;
  check_started(part);
  for (size_t i = 0; i < part.reducer->num_buckets(); ++i) {
    part.reducer->settle(i);
    optimizer.step_wave(static_cast<int64_t>(i));
  }
  part.reducer->finish();
}

/// A replay of a wait alone would leave the start that it belongs to under way.
void Ddp::check_started(const Part& part) const {
  graph::HostPart* recording = graph::HostPart::current();
  if (recording == nullptr || !recording->is_first(&part)) return;
  recording->refuse(
      "under --ddp-overlap-update it waits for gradients of a backward outside of it; let it call "
      "backward too, or set --ddp-overlap-update false");
}

void Ddp::scale_gradients(double scale) {
  for (Part& part : parts_) part.reducer->set_scale(scale);
}

/// A wave for each bucket.
bool Ddp::cut_in_waves(optim::Optimizer& optimizer) {
  Part& part = parts_[0];
  if (part.cut_optimizer == &optimizer && part.cut_layout == part.reducer->layout()) return true;
  std::vector<int64_t> waves;
  for (const NamedTensor& parameter : optimizer.parameters()) {
    waves.push_back(static_cast<int64_t>(part.reducer->bucket_of(parameter.tensor).value_or(0)));
  }
  if (!optimizer.set_waves(std::move(waves))) return false;
  part.cut_optimizer = &optimizer;
  part.cut_layout = part.reducer->layout();
  return true;
}

void Ddp::finish() {
  launch_rest(touched_anywhere(false), /*counts=*/true);
  if (!options_.overlap_update) wait_gradients();
}

/// counts: see Reducer::launch_rest.
void Ddp::launch_rest(const std::vector<bool>& touched, bool counts) {
  graph::HostPart* recording = graph::HostPart::current();
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].settled = false;
    if (!touched[i]) {
      parts_[i].reducer->skip();
      continue;
    }
    parts_[i].reducer->launch_rest(counts);
    parts_[i].pending = true;
    if (recording != nullptr) recording->is_first(&parts_[i]);
  }
  // In a loop that takes its steps without update() it is here that they agree.
  if (std::exchange(buffers_differ_, true) && !by_operators_) synchronize_buffers();
}

/// One backward often concerns one of several modules, as in a GAN. joins: without a backward of
/// its own this rank has gradients of those it has touched before.
std::vector<bool> Ddp::touched_anywhere(bool joins) {
  if (parts_.size() == 1 && !by_operators_) return {true};
  std::vector<bool> touched;
  for (const Part& part : parts_) {
    touched.push_back(part.reducer->touched() || (joins && part.reducer->holds_gradients()));
  }
  if (parts_.size() == 1 || !ranks_agree_) return touched;
  if (!by_operators_) return on_any_rank(touched);
  // Replayed steps cannot ask: ranks agree once on what a backward touches together with this.
  const auto known = agreed_touches_.find(touched);
  if (known != agreed_touches_.end()) return known->second;
  const graph::UnseenScope unseen;
  return agreed_touches_[touched] = on_any_rank(touched);
}

std::vector<bool> Ddp::on_any_rank(const std::vector<bool>& touched) {
  std::vector<uint8_t> flags(touched.begin(), touched.end());
  const at::Tensor agreed = at::from_blob(flags.data(), {std::ssize(flags)}, at::kByte);
  group_.all_reduce(agreed, ReduceOp::kMax);
  return {flags.begin(), flags.end()};
}

namespace {

class JoinableDdp final : public Ddp, public Presence {
 public:
  explicit JoinableDdp(const StrategyContext& context)
      : Ddp("ddp", context), Presence(group_, options_.gradient_reduction == "mean") {}

 private:
  void begin_exchange() override { Presence::begin_exchange(); }
  void end_exchange() override { wait_gradients(); }
  void set_scale(double scale) override { scale_gradients(scale); }
  void shadow_exchange() override { exchange_nothing(); }
};

}  // namespace
}  // namespace ddp

std::unique_ptr<Strategy> make_ddp(const StrategyContext& context) {
  if (context.recordable) return std::make_unique<ddp::Ddp>("ddp", context);
  return std::make_unique<ddp::JoinableDdp>(context);
}

}  // namespace levin
