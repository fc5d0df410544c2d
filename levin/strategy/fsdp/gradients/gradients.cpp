// The way of gradients to the other ranks; gradients_memory.cpp has where they lie meanwhile.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/arrivals.h"
#include "levin/strategy/fsdp/fsdp_mesh.h"
#include "levin/strategy/fsdp/gradients/gradients_impl.h"

namespace levin::fsdp {

using shard::GradientSlot;
using shard::ShardedParameter;

Gradients::Gradients(const comm::DeviceMesh& mesh, const std::vector<Unit*>& units,
                     std::vector<NamedTensor> replicated, const FsdpOptions& options,
                     bool by_operators)
    : group_(mesh.flat()),
      shards_(shard_group(mesh)),
      replicas_(replica_group(mesh)),
      options_(options),
      by_operators_(by_operators),
      replicated_(std::move(replicated), options.reduce_in_float32, by_operators),
      self_(std::make_shared<Gradients*>(this)) {
  size_t flags = 0;
  for (Unit* each : units) {
    if (!c10::isFloatingType(each->type()) && !c10::isComplexType(each->type())) continue;
    auto unit = std::make_unique<UnitGradients>();
    unit->unit = each;
    unit->type = each->reduce_dtype();
    unit->first_flag = flags;
    flags += each->parameters().size();
    for (const auto& parameter : each->parameters()) {
      parameter->gradient() = {};
      add_arrival_hook(parameter->leaf(), [self = std::weak_ptr(self_), unit = unit.get(),
                                           parameter = parameter.get()] {
        if (const auto alive = self.lock()) (*alive)->arrived(*unit, *parameter);
      });
    }
    units_.push_back(std::move(unit));
  }
  used_ = at::zeros({static_cast<int64_t>(flags) + replicated_.num_exchanged()}, at::kDouble);
  // Gradients arrive about in the opposite order of use.
  order_.resize(units_.size());
  std::iota(order_.rbegin(), order_.rend(), size_t{0});
  for (const auto& unit : units_) plan(*unit);
}

Gradients::~Gradients() {
  self_.reset();
  for (const auto& unit : units_) {
    for (const auto& parameter : unit->unit->parameters()) remove_arrival_hook(parameter->leaf());
  }
}

/// Frozen parameters send nothing. The rows of a rank lie one behind the other, as in the unit.
void Gradients::plan(UnitGradients& unit) {
  std::vector<size_t> trained;
  const auto& parameters = unit.unit->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    GradientSlot& slot = parameters[i]->gradient();
    slot.trains = parameters[i]->leaf().requires_grad();
    slot.number = trained.size();
    if (slot.trains) trained.push_back(i);
  }
  unit.layout = unit.unit->layout().only(trained, /*alignment=*/1);
  unit.own.reset();
}

void Gradients::begin(bool synchronize) {
  const at::NoGradGuard no_grad;
  if (std::exchange(abandoned_, false)) drain();
  if (synchronize) {
    expected_ = arrivals_.empty() ? arrivals_of_modules() : std::exchange(arrivals_, {});
  }
  stray_.begin(synchronize);
  replicated_.begin();
  synchronizing_ = synchronize;
  adds_up_ = false;
  next_ = 0;
  complete_.clear();
  for (const auto& unit : units_) {
    const auto& parameters = unit->unit->parameters();
    const bool changed = std::ranges::any_of(parameters, [](const auto& parameter) {
      return parameter->gradient().trains != parameter->leaf().requires_grad();
    });
    if (changed) plan(*unit);
    unit->launched = false;
    unit->missing = 0;
    for (const auto& parameter : parameters) {
      GradientSlot& slot = parameter->gradient();
      slot.state = GradientSlot::State::kAbsent;
      if (!slot.trains) continue;
      ++unit->missing;
      at::Tensor& gradient = parameter->leaf().mutable_grad();
      if (!slot.accumulated.defined()) {
        slot.reduced = std::exchange(gradient, at::Tensor());
      } else if (!gradient.defined()) {  // zero_grad()
        slot.accumulated.reset();
        slot.reduced.reset();
      } else {
        LEVIN_CHECK(gradient.is_alias_of(slot.accumulated) &&
                        static_cast<int64_t>(gradient._version()) == slot.accumulated_version,
                    "strategy.fsdp.gradients",
                    "the gradient of {} was changed between the batches of an accumulation window, "
                    "before it was reduced over the ranks; set "
                    "gradient_accumulation_plugin.sync_each_batch, which "
                    "reduces gradients after each batch",
                    parameter->name());
        gradient = slot.accumulated;
      }
    }
  }
  if (synchronize && !by_operators_) make_rings();  // a run that only evaluates needs none
}

void Gradients::keep() {
  const at::NoGradGuard no_grad;
  stray_.end();
  replicated_.keep();
  for (const auto& unit : units_) {
    for (const auto& parameter : unit->unit->parameters()) {
      GradientSlot& slot = parameter->gradient();
      if (!slot.trains) continue;
      at::Tensor& gradient = parameter->leaf().mutable_grad();
      if (!gradient.defined()) {
        gradient = std::exchange(slot.reduced, at::Tensor());
        continue;
      }
      slot.accumulated = gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
      gradient = shard::part_of(slot.accumulated, shard::full_slice(parameter->sizes()),
                                parameter->slice());
      slot.accumulated_version = static_cast<int64_t>(gradient._version());
    }
  }
}

void Gradients::arrived(UnitGradients& unit, ShardedParameter& parameter) {
  if (stray_.is_stray(parameter.name())) return;
  if (!synchronizing_) return;
  const at::NoGradGuard no_grad;
  LEVIN_CHECK(!unit.launched, "strategy.fsdp.twice",
              "parameter {} got a second gradient in one backward after its first was sent to the "
              "other ranks; make one backward give it one gradient",
              parameter.name());
  GradientSlot& slot = parameter.gradient();
  at::Tensor gradient = std::exchange(parameter.leaf().mutable_grad(), at::Tensor());
  slot.accumulated.reset();  // is in it
  if (slot.has_arrived()) return fill(unit, parameter, gradient, /*adds=*/true);
  if (gradient_bytes(parameter) >= kLargeGradient) arrivals_.emplace_back(&unit, &parameter);
  if (!unit.memory.defined()) take_buffer(unit);
  const bool was_lent = slot.state == GradientSlot::State::kLent;
  fill(unit, parameter, gradient);
  // The first time it was a guess.
  if (learnt_) slot.is_never_lent |= was_lent && slot.state != GradientSlot::State::kInPlace;
  if (--unit.missing > 0) return;
  complete_.push_back(unit.first_flag);
  launch_complete();
}

void Gradients::launch_complete() {
  while (next_ < order_.size() && units_[order_[next_]]->missing == 0)
    launch(*units_[order_[next_++]]);
}

void Gradients::launch(UnitGradients& unit) {
  RECORD_FUNCTION("levin::fsdp::reduce_gradients", std::vector<c10::IValue>());
  unit.launched = true;
  if (unit.layout.numel() == 0) return;  // all of it is frozen
  unit.missing = 0;
  if (!unit.memory.defined()) take_buffer(unit);
  const auto& parameters = unit.unit->parameters();
  const bool has_others_tensors = std::ranges::any_of(parameters, [](const auto& parameter) {
    const GradientSlot& slot = parameter->gradient();
    return slot.trains && *slot.num_lent > 0 && slot.state != GradientSlot::State::kInPlace;
  });
  if (!by_operators_ && (!unit.buffer || has_others_tensors)) leave_buffer(unit);
  bool adds = false;
  for (const auto& parameter : parameters) {
    GradientSlot& slot = parameter->gradient();
    if (!slot.trains) continue;
    adds |= slot.reduced.defined();
    if (slot.state == GradientSlot::State::kWaiting) {
      fill(unit, *parameter, std::exchange(slot.waiting, at::Tensor()));
    } else if (!slot.has_arrived()) {
      const at::Tensor place = unit.place_of(*parameter, unit.memory);
      slot.accumulated.defined() ? place.copy_(std::exchange(slot.accumulated, at::Tensor()))
                                 : place.zero_();
    }
  }
  if (by_operators_) return reduce_by_operators(unit);
  const auto kind = unit.memory.options();
  const int64_t own = unit.layout.run(shards_.rank());
  if (!unit.own.defined()) unit.own = at::empty({own}, kind);
  unit.target = adds ? at::empty({own}, kind) : unit.own;
  unit.scatter = std::make_shared<comm::Work>(
      shards_.reduce_scatter(unit.target, unit.memory.narrow(0, 0, unit.layout.numel()),
                             reduction(), unit.layout.runs(), comm::Return::kAsync));
  if (unit.buffer) {
    rings_.at(unit.type).sent(*unit.buffer, unit.scatter);
  } else {
    others_.push_back(unit.scatter);
  }
  if (replicas_.size() == 1 || own == 0) return;
  scattered_.push_back(&unit);
  reduce_replicas(/*newest=*/1);
}

ReduceOp Gradients::reduction() const {
  return options_.gradient_reduction == "sum" ? ReduceOp::kSum : ReduceOp::kMean;
}

void Gradients::reduce_replicas(size_t newest) {
  while (scattered_.size() > newest) {
    UnitGradients& unit = *scattered_.front();
    scattered_.erase(scattered_.begin());
    unit.scatter->wait();
    others_.push_back(std::make_shared<comm::Work>(
        replicas_.all_reduce(unit.target, reduction(), comm::Return::kAsync)));
  }
}

void Gradients::launch_rest(bool counts) {
  const at::NoGradGuard no_grad;
  auto* flags = used_.mutable_data_ptr<double>();
  std::fill_n(flags, used_.numel(), 0.0);
  for (const auto& unit : units_) {
    size_t flag = unit->first_flag;
    for (const auto& parameter : unit->unit->parameters()) {
      const GradientSlot& slot = parameter->gradient();
      // .grad was put into this backward and nothing came to it.
      if (slot.trains && !slot.has_arrived()) parameter->leaf().mutable_grad().reset();
      if (slot.has_arrived() || (counts && slot.accumulated.defined())) flags[flag] = 1;
      ++flag;
    }
  }
  for (; next_ < order_.size(); ++next_) launch(*units_[order_[next_]]);
  stray_.end();
  replicated_.start(flags + used_.numel() - replicated_.num_exchanged(), group_);
  by_operators_ ? agree_on_use()
                : void(used_work_ = group_.all_reduce(used_, ReduceOp::kSum, comm::Return::kAsync));
  synchronizing_ = false;
  pending_ = true;
}

bool Gradients::wait() {
  if (!std::exchange(pending_, false)) return false;
  const at::NoGradGuard no_grad;
  reduce_replicas(/*newest=*/0);
  drain();
  used_work_.wait();
  const auto* used = used_.const_data_ptr<double>();
  for (const auto& unit : units_) adopt(*unit, used + unit->first_flag);
  const double share =
      (reduction() == ReduceOp::kSum ? 1.0 : 1.0 / static_cast<double>(group_.size())) * scale_;
  const int64_t num_flags = used_.numel() - replicated_.num_exchanged();
  bool any = replicated_.take(used + num_flags, share);
  for (int64_t i = 0; i < num_flags; ++i) any |= used[i] != 0;
  if (!learnt_) learn_order();
  return any;
}

bool Gradients::accumulates() const {
  return adds_up_ || std::ranges::any_of(units_, [](const auto& unit) {
           return std::ranges::any_of(unit->unit->parameters(), [](const auto& parameter) {
             return parameter->gradient().accumulated.defined();
           });
         });
}

void Gradients::adopt(UnitGradients& unit, const double* used) {
  const int64_t rank = shards_.rank();
  for (const auto& parameter : unit.unit->parameters()) {
    GradientSlot& slot = parameter->gradient();
    const bool is_used = *used++ != 0;
    if (!slot.trains) continue;
    at::Tensor& gradient = parameter->leaf().mutable_grad();
    if (!is_used) {
      gradient = std::exchange(slot.reduced, at::Tensor());
      continue;
    }
    const at::Tensor& rows = parameter->rows();
    at::Tensor sum = rows.size(0) == 0
                         ? at::empty(rows.sizes(), unit.target.options())
                         : unit.target.as_strided(
                               rows.sizes(), parameter->full().tensor().strides(),
                               unit.layout.offset(slot.number, rank) - unit.layout.run_begin(rank));
    if (by_operators_)
      sum = sum.variable_data();  // a view holds what it is of, which a recording counts
    if (scale_ != 1) sum.mul_(scale_);
    if (unit.type != unit.unit->type()) sum = sum.to(unit.unit->type());
    if (!slot.reduced.defined()) {
      gradient = std::move(sum);
    } else {
      adds_up_ = true;
      gradient = std::exchange(slot.reduced, at::Tensor()).add_(sum);
    }
  }
  unit.target.reset();
}

void Gradients::abandon() {
  abandoned_ = true;
  stray_.end();
  replicated_.abandon();
  for (const auto& unit : units_) {
    for (const auto& parameter : unit->unit->parameters()) {
      parameter->gradient().clear();
      if (parameter->gradient().trains) parameter->leaf().mutable_grad().reset();
    }
  }
  synchronizing_ = pending_ = false;
}

void Gradients::learn_order() {
  const graph::UnseenScope unseen;
  learnt_ = true;
  std::vector<size_t> arrived;
  for (const size_t flag : complete_) {
    const auto unit =
        std::ranges::find(units_, flag, [](const auto& each) { return each->first_flag; });
    arrived.push_back(static_cast<size_t>(unit - units_.begin()));
  }
  order_ = agree_on_order(group_, arrived, order_);
}

}  // namespace levin::fsdp
