// The memory of gradients until the other ranks have read them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <utility>

#include "levin/strategy/fsdp/gradients/gradients_impl.h"

namespace levin::fsdp {
namespace {

// One is summed while the next one fills. A gradient that could not be made in its place is a third
// copy beside them, so that a rank never has more than three units' gradients.
constexpr size_t kMostBuffers = 2;
constexpr int64_t kTensorAlignment = 64;

}  // namespace

/// Makes the rings, or larger ones if more parameters are trained than before. A run that only
/// evaluates needs none. All ranks come here together.
void Gradients::make_rings() {
  struct Need {
    at::Device device = at::kCPU;
    size_t num_parts = 0;
    int64_t most_elements = 0;
  };
  std::map<at::ScalarType, Need> needs;
  for (const auto& part : parts_) {
    if (part->numel == 0) continue;
    Need& need = needs[part->type];
    need.device = part->unit->own().device();
    need.most_elements = std::max(need.most_elements, part->numel);
    ++need.num_parts;
  }
  for (const auto& [type, need] : needs) {
    const size_t count = std::min(need.num_parts, kMostBuffers);
    const auto ring = rings_.find(type);
    if (ring != rings_.end() && ring->second.fits(need.most_elements, count)) continue;
    if (ring != rings_.end()) rings_.erase(ring);  // its memory goes before more is taken
    rings_.try_emplace(type, group_, type, need.device, need.most_elements, count);
  }
}

/// Returns the opposite order of the modules, for the first backward.
Gradients::Arrivals Gradients::arrivals_of_modules() const {
  Arrivals arrivals;
  for (const auto& part : parts_) {
    for (size_t index = 0; index < part->members.size(); ++index) {
      if (part->members[index].bytes >= kLargeGradient) arrivals.emplace_back(part.get(), index);
    }
  }
  std::ranges::reverse(arrivals);
  return arrivals;
}

/// Gives a tensor the place that the last backward's order predicts. If the tensor turns out to be
/// another one, or somebody keeps it, it is left alone, and the gradient is sent from other memory.
at::DataPtr Gradients::allocate(size_t num_bytes) {
  if (!synchronizing_ || num_bytes < kLargeGradient) return {};
  for (const auto& [part, index] : expected_) {
    Member& member = part->members[index];
    if (member.bytes != num_bytes || part->type != part->unit->type()) continue;
    const bool may_come = member.trains && !member.arrived && !member.is_given &&
                          !member.stays_away && *member.num_lent == 0 &&
                          !member.leaf->parameter.grad().defined();
    if (!may_come) continue;
    if (!part->memory.defined()) take_buffer(*part);
    const int64_t place = member.offset * static_cast<int64_t>(c10::elementSize(part->type));
    if (!part->buffer || place % kTensorAlignment != 0) return {};
    member.is_given = true;
    return rings_.at(part->type).lend(*part->buffer, member.offset, member.num_lent);
  }
  return {};
}

/// Into the part's memory, or beside it until there is some that nobody else has.
void Gradients::fill(Part& part, Member& member, const at::Tensor& gradient, bool adds) {
  const at::Tensor dense = gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
  if (member.waiting.defined()) {
    member.waiting = member.waiting + dense;
    return;
  }
  if (!part.memory.defined()) {
    member.waiting = dense;
    return;
  }
  const Leaf& leaf = *member.leaf;
  const at::Tensor place = part.memory.as_strided(leaf.sizes, leaf.strides, member.offset);
  if (!adds && part.buffer && dense.const_data_ptr() == place.const_data_ptr() &&
      dense.scalar_type() == part.type && dense.strides() == place.strides()) {
    member.is_in_place = true;
  } else if (part.buffer && *member.num_lent > 0) {
    member.waiting = adds ? place + dense : dense;
    member.is_in_place = false;
  } else {
    adds ? place.add_(dense) : place.copy_(dense);
  }
}

void Gradients::take_buffer(Part& part) {
  GradientRing& ring = rings_.at(part.type);
  part.buffer = ring.take(/*is_sent_next=*/part.missing == 0);
  if (part.buffer) part.memory = ring.memory(*part.buffer);
}

void Gradients::leave_buffer(Part& part) {
  const at::Tensor memory = at::empty({part.numel}, part.unit->own().options().dtype(part.type));
  if (part.buffer) {
    for (const Member& member : part.members) {
      if (!member.trains || !member.arrived || member.waiting.defined()) continue;
      const Leaf& leaf = *member.leaf;
      memory.as_strided(leaf.sizes, leaf.strides, member.offset)
          .copy_(part.memory.as_strided(leaf.sizes, leaf.strides, member.offset));
    }
    rings_.at(part.type).give_back(*std::exchange(part.buffer, {}));
  }
  part.memory = memory;
}

void Gradients::drain() {
  for (auto& [type, ring] : rings_) ring.drain();
  for (comm::Work& work : std::exchange(others_, {})) work.wait();
  for (const auto& part : parts_) {
    part->memory.reset();
    part->buffer.reset();
  }
}

}  // namespace levin::fsdp
