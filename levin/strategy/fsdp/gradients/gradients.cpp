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
#include "levin/strategy/arrivals.h"
#include "levin/strategy/fsdp/gradients/gradients_impl.h"

namespace levin::fsdp {
namespace {

bool is_half(at::ScalarType type) { return c10::isReducedFloatingType(type); }

}  // namespace

Gradients::Gradients(const comm::ProcessGroup& group, const std::vector<Unit*>& units,
                     std::vector<NamedTensor> whole, const FsdpOptions& options)
    : group_(group),
      options_(options),
      whole_(std::move(whole)),
      self_(std::make_shared<Gradients*>(this)) {
  size_t flags = 0;
  for (Unit* unit : units) {
    if (!c10::isFloatingType(unit->type()) && !c10::isComplexType(unit->type())) continue;
    auto part = std::make_unique<Part>();
    part->unit = unit;
    part->type = options.reduce_in_float32 && is_half(unit->type()) ? at::kFloat : unit->type();
    part->first_flag = flags;
    for (Leaf& leaf : unit->leaves()) {
      const int64_t numel = leaf.extent.num_rows * leaf.extent.row_numel;
      const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(unit->type());
      part->members.push_back({.leaf = &leaf, .bytes = bytes});
    }
    flags += part->members.size();
    for (size_t index = 0; index < part->members.size(); ++index) {
      add_arrival_hook(part->members[index].leaf->parameter,
                       [self = std::weak_ptr(self_), part = part.get(), index] {
                         if (const auto alive = self.lock()) (*alive)->arrived(*part, index);
                       });
    }
    parts_.push_back(std::move(part));
  }
  used_ = at::zeros({static_cast<int64_t>(flags) + whole_.num_exchanged()}, at::kDouble);
  // Gradients arrive about in the opposite order of use.
  order_.resize(parts_.size());
  std::iota(order_.rbegin(), order_.rend(), size_t{0});
  for (const auto& part : parts_) plan(*part);
}

Gradients::~Gradients() {
  self_.reset();
  for (const auto& part : parts_) {
    for (const Member& member : part->members) remove_arrival_hook(member.leaf->parameter);
  }
}

/// Frozen parameters send nothing. The rows of a rank lie one behind the other, as in the unit.
void Gradients::plan(Part& part) {
  part.numel = 0;
  part.runs.assign(static_cast<size_t>(group_.size()), 0);
  for (Member& member : part.members) {
    member.trains = member.leaf->parameter.requires_grad();
    if (!member.trains) continue;
    member.offset = part.numel;
    member.own_offset = part.runs[static_cast<size_t>(group_.rank())];
    part.numel += member.leaf->extent.num_rows * member.leaf->extent.row_numel;
    for (size_t rank = 0; rank < part.runs.size(); ++rank) {
      part.runs[rank] += member.leaf->rows_of_ranks[rank] * member.leaf->extent.row_numel;
    }
  }
  part.own.reset();
}

void Gradients::begin(bool synchronize) {
  const at::NoGradGuard no_grad;
  if (std::exchange(abandoned_, false)) drain();
  if (synchronize) {
    expected_ = arrivals_.empty() ? arrivals_of_modules() : std::exchange(arrivals_, {});
  }
  stray_.begin(synchronize);
  whole_.begin();
  synchronizing_ = synchronize;
  next_ = 0;
  complete_.clear();
  for (const auto& part : parts_) {
    const bool changed = std::ranges::any_of(part->members, [](const Member& member) {
      return member.trains != member.leaf->parameter.requires_grad();
    });
    if (changed) plan(*part);
    part->launched = false;
    part->missing = 0;
    for (Member& member : part->members) {
      member.arrived = member.is_given = member.is_in_place = false;
      if (!member.trains) continue;
      ++part->missing;
      at::Tensor& gradient = member.leaf->parameter.mutable_grad();
      if (!member.held.defined()) {
        member.aside = std::exchange(gradient, at::Tensor());
      } else if (!gradient.defined()) {  // zero_grad()
        member.held.reset();
        member.aside.reset();
      } else {
        LEVIN_CHECK(gradient.is_alias_of(member.held) &&
                        static_cast<int64_t>(gradient._version()) == member.held_version,
                    "strategy.fsdp.gradients",
                    "the gradient of {} was changed between the batches of an accumulation window, "
                    "before it was reduced over the ranks; set "
                    "gradient_accumulation_plugin.sync_each_batch, which "
                    "reduces gradients after each batch",
                    member.leaf->name);
        gradient = member.held;
      }
    }
  }
  if (synchronize) make_rings();
}

void Gradients::keep() {
  const at::NoGradGuard no_grad;
  stray_.end();
  whole_.keep();
  for (const auto& part : parts_) {
    for (Member& member : part->members) {
      if (!member.trains) continue;
      const Leaf& leaf = *member.leaf;
      at::Tensor& gradient = leaf.parameter.mutable_grad();
      if (!gradient.defined()) {
        gradient = std::exchange(member.aside, at::Tensor());
        continue;
      }
      member.held = gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
      gradient = member.held.narrow(0, leaf.first_row(group_.rank()), leaf.rows.size(0));
      member.held_version = static_cast<int64_t>(gradient._version());
    }
  }
}

void Gradients::arrived(Part& part, size_t index) {
  if (stray_.is_stray(part.members[index].leaf->name)) return;
  if (!synchronizing_) return;
  const at::NoGradGuard no_grad;
  Member& member = part.members[index];
  LEVIN_CHECK(!part.launched, "strategy.fsdp.twice",
              "parameter {} got a second gradient in one backward after its first was sent to the "
              "other ranks; make one backward give it one gradient",
              member.leaf->name);
  at::Tensor gradient = std::exchange(member.leaf->parameter.mutable_grad(), at::Tensor());
  member.held.reset();  // is in it
  if (std::exchange(member.arrived, true)) return fill(part, member, gradient, /*adds=*/true);
  if (member.bytes >= kLargeGradient) arrivals_.emplace_back(&part, index);
  if (!part.memory.defined()) take_buffer(part);
  fill(part, member, gradient);
  // The first time it was a guess.
  if (learnt_) member.stays_away |= member.is_given && !member.is_in_place;
  if (--part.missing > 0) return;
  complete_.push_back(part.first_flag);
  launch_complete();
}

void Gradients::launch_complete() {
  while (next_ < order_.size() && parts_[order_[next_]]->missing == 0)
    launch(*parts_[order_[next_++]]);
}

void Gradients::launch(Part& part) {
  RECORD_FUNCTION("levin::fsdp::reduce_gradients", std::vector<c10::IValue>());
  if (part.numel == 0) {  // all of it is frozen
    part.launched = true;
    return;
  }
  part.missing = 0;
  if (!part.memory.defined()) take_buffer(part);
  const bool has_others_tensors = std::ranges::any_of(part.members, [](const Member& member) {
    return member.trains && *member.num_lent > 0 && !member.is_in_place;
  });
  if (!part.buffer || has_others_tensors) leave_buffer(part);
  bool adds = false;
  for (Member& member : part.members) {
    if (!member.trains) continue;
    adds |= member.aside.defined();
    if (member.waiting.defined()) fill(part, member, std::exchange(member.waiting, at::Tensor()));
    if (!member.arrived && !member.held.defined()) {
      part.memory
          .narrow(0, member.offset, member.leaf->extent.num_rows * member.leaf->extent.row_numel)
          .zero_();
    }
    if (member.held.defined()) fill(part, member, std::exchange(member.held, at::Tensor()));
  }
  const auto own = part.runs[static_cast<size_t>(group_.rank())];
  const auto kind = part.memory.options();
  if (!part.own.defined()) part.own = at::empty({own}, kind);
  part.target = adds ? at::empty({own}, kind) : part.own;
  part.launched = true;
  const ReduceOp op = options_.gradient_reduction == "sum" ? ReduceOp::kSum : ReduceOp::kMean;
  comm::Work work = group_.reduce_scatter(part.target, part.memory.narrow(0, 0, part.numel), op,
                                          part.runs, comm::Return::kAsync);
  if (part.buffer) {
    rings_.at(part.type).sent(*part.buffer, std::move(work));
  } else {
    others_.push_back(std::move(work));
  }
}

void Gradients::launch_rest(bool counts) {
  const at::NoGradGuard no_grad;
  auto* flags = used_.mutable_data_ptr<double>();
  std::fill_n(flags, used_.numel(), 0.0);
  for (const auto& part : parts_) {
    for (size_t index = 0; index < part->members.size(); ++index) {
      Member& member = part->members[index];
      // .grad was put into this backward and nothing came to it.
      if (member.trains && !member.arrived) member.leaf->parameter.mutable_grad().reset();
      if (member.arrived || (counts && member.held.defined())) flags[part->first_flag + index] = 1;
    }
  }
  for (; next_ < order_.size(); ++next_) launch(*parts_[order_[next_]]);
  stray_.end();
  whole_.put(flags + used_.numel() - whole_.num_exchanged());
  used_work_ = group_.all_reduce(used_, ReduceOp::kSum, comm::Return::kAsync);
  synchronizing_ = false;
  pending_ = true;
}

bool Gradients::wait() {
  if (!std::exchange(pending_, false)) return false;
  const at::NoGradGuard no_grad;
  drain();
  used_work_.wait();
  const auto* used = used_.const_data_ptr<double>();
  for (const auto& part : parts_) adopt(*part, used + part->first_flag);
  const double share =
      (options_.gradient_reduction == "sum" ? 1.0 : 1.0 / static_cast<double>(group_.size())) *
      scale_;
  const int64_t num_flags = used_.numel() - whole_.num_exchanged();
  bool any = whole_.take(used + num_flags, share);
  for (int64_t i = 0; i < num_flags; ++i) any |= used[i] != 0;
  if (!learnt_) learn_order();
  return any;
}

void Gradients::adopt(Part& part, const double* used) {
  for (size_t index = 0; index < part.members.size(); ++index) {
    Member& member = part.members[index];
    if (!member.trains) continue;
    const Leaf& leaf = *member.leaf;
    at::Tensor& gradient = leaf.parameter.mutable_grad();
    if (used[index] == 0) {
      gradient = std::exchange(member.aside, at::Tensor());
      continue;
    }
    at::Tensor sum =
        leaf.rows.size(0) == 0
            ? at::empty(leaf.rows.sizes(), part.target.options())
            : part.target.as_strided(leaf.rows.sizes(), leaf.strides, member.own_offset);
    if (scale_ != 1) sum.mul_(scale_);
    if (part.type != part.unit->type()) sum = sum.to(part.unit->type());
    gradient = member.aside.defined() ? std::exchange(member.aside, at::Tensor()).add_(sum)
                                      : std::move(sum);
  }
  part.target.reset();
}

void Gradients::abandon() {
  abandoned_ = true;
  stray_.end();
  whole_.abandon();
  for (const auto& part : parts_) {
    for (Member& member : part->members) {
      for (at::Tensor* each : {&member.waiting, &member.held, &member.aside}) each->reset();
      if (member.trains) member.leaf->parameter.mutable_grad().reset();
    }
  }
  synchronizing_ = pending_ = false;
}

void Gradients::learn_order() {
  learnt_ = true;
  std::vector<size_t> arrived;
  for (const size_t flag : complete_) {
    const auto part = std::ranges::find(parts_, flag, [](const auto& p) { return p->first_flag; });
    arrived.push_back(static_cast<size_t>(part - parts_.begin()));
  }
  order_ = agree_on_order(group_, arrived, order_);
}

}  // namespace levin::fsdp
