// The memory of gradients until the other ranks have read them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <utility>

#include "levin/strategy/fsdp/gradients/gradients_impl.h"

namespace levin::fsdp {

using shard::GradientSlot;
using shard::ShardedParameter;

namespace {

// One is summed while the next one fills. A gradient that could not be made in its place is a third
// copy beside them, so that a rank never has more than three units' gradients.
constexpr size_t kMostBuffers = 2;
constexpr int64_t kTensorAlignment = 64;

}  // namespace

void Gradients::make_rings() {
  struct Need {
    at::Device device = at::kCPU;
    size_t num_units = 0;
    int64_t most_elements = 0;
  };
  std::map<at::ScalarType, Need> needs;
  for (const auto& unit : units_) {
    const int64_t numel = unit->layout.numel();
    if (numel == 0) continue;
    Need& need = needs[unit->type];
    need.device = unit->unit->parameters().front()->rows().device();
    need.most_elements = std::max(need.most_elements, numel);
    ++need.num_units;
  }
  for (const auto& [type, need] : needs) {
    // Operators wait for each unit.
    const size_t count = by_operators_ ? 1 : std::min(need.num_units, kMostBuffers);
    const auto ring = rings_.find(type);
    if (ring != rings_.end() && ring->second.fits(need.most_elements, count)) continue;
    if (ring != rings_.end()) rings_.erase(ring);  // its memory goes before more is taken
    rings_.try_emplace(type, shards_, type, need.device, need.most_elements, count);
  }
}

std::vector<at::Tensor> Gradients::exchange_memory() const {
  std::vector<at::Tensor> buffers;
  for (const auto& [type, ring] : rings_) buffers.push_back(ring.memory(0));
  return buffers;
}

/// Returns the opposite order of the modules, for the first backward.
Gradients::Arrivals Gradients::arrivals_of_modules() const {
  Arrivals arrivals;
  for (const auto& unit : units_) {
    for (const auto& parameter : unit->unit->parameters()) {
      if (gradient_bytes(*parameter) >= kLargeGradient) {
        arrivals.emplace_back(unit.get(), parameter.get());
      }
    }
  }
  std::ranges::reverse(arrivals);
  return arrivals;
}

/// Gives a tensor the place that the last backward's order predicts. If the tensor turns out to be
/// another one, or somebody keeps it, it is left alone, and the gradient is sent from other memory.
at::DataPtr Gradients::allocate(size_t num_bytes) {
  if (!synchronizing_ || num_bytes < kLargeGradient) return {};
  for (const auto& [unit, parameter] : expected_) {
    if (gradient_bytes(*parameter) != num_bytes || unit->type != unit->unit->type()) continue;
    GradientSlot& slot = parameter->gradient();
    const bool may_come = slot.trains && slot.state == GradientSlot::State::kAbsent &&
                          !slot.is_never_lent && *slot.num_lent == 0 &&
                          !parameter->leaf().grad().defined();
    if (!may_come) continue;
    if (!unit->memory.defined()) take_buffer(*unit);
    const int64_t offset = unit->layout.offset(slot.number);
    const int64_t place = offset * static_cast<int64_t>(c10::elementSize(unit->type));
    if (!unit->buffer || place % kTensorAlignment != 0) return {};
    slot.state = GradientSlot::State::kLent;
    return rings_.at(unit->type).lend(*unit->buffer, offset, slot.num_lent);
  }
  return {};
}

/// Puts a gradient into the unit's memory, or beside it until there is some that nobody else has.
void Gradients::fill(UnitGradients& unit, ShardedParameter& parameter, const at::Tensor& gradient,
                     bool adds) {
  using State = GradientSlot::State;
  GradientSlot& slot = parameter.gradient();
  const at::Tensor dense = gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
  if (slot.waiting.defined()) {
    slot.waiting = slot.waiting + dense;
    return;
  }
  if (!unit.memory.defined()) {
    slot.waiting = dense;
    slot.state = State::kWaiting;
    return;
  }
  const at::Tensor place = unit.place_of(parameter, unit.memory);
  if (!adds && unit.buffer && dense.const_data_ptr() == place.const_data_ptr() &&
      dense.scalar_type() == unit.type && dense.strides() == place.strides()) {
    slot.state = State::kInPlace;
  } else if (unit.buffer && *slot.num_lent > 0) {
    slot.waiting = adds ? place + dense : dense;
    slot.state = State::kWaiting;
  } else if (adds) {
    place.add_(dense);
  } else {
    place.copy_(dense);
    slot.state = State::kInBuffer;
  }
}

void Gradients::take_buffer(UnitGradients& unit) {
  if (by_operators_) {  // memory of the step, which a recording plans
    unit.memory = at::empty({unit.layout.numel()},
                            unit.unit->parameters().front()->rows().options().dtype(unit.type));
    return;
  }
  GradientRing& ring = rings_.at(unit.type);
  unit.buffer = ring.take(/*is_sent_next=*/unit.missing == 0);
  if (unit.buffer) unit.memory = ring.memory(*unit.buffer);
}

void Gradients::leave_buffer(UnitGradients& unit) {
  const at::Tensor memory = at::empty(
      {unit.layout.numel()}, unit.unit->parameters().front()->rows().options().dtype(unit.type));
  if (unit.buffer) {
    for (const auto& parameter : unit.unit->parameters()) {
      const GradientSlot& slot = parameter->gradient();
      if (!slot.trains || !slot.has_arrived() || slot.waiting.defined()) continue;
      unit.place_of(*parameter, memory).copy_(unit.place_of(*parameter, unit.memory));
    }
    rings_.at(unit.type).give_back(*std::exchange(unit.buffer, {}));
  }
  unit.memory = memory;
}

void Gradients::drain() {
  for (auto& [type, ring] : rings_) ring.drain();
  for (const auto& work : std::exchange(others_, {})) work->wait();
  scattered_.clear();
  for (const auto& unit : units_) {
    unit->memory.reset();
    unit->buffer.reset();
  }
}

}  // namespace levin::fsdp
