#include "levin/strategy/ddp/reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/strategy/ddp/arrival_hook.h"

namespace levin::ddp {
namespace {

constexpr double kMiB = 1 << 20;

at::ScalarType type_on_the_way(const std::string& hook, at::ScalarType type) {
  if (!c10::isFloatingType(type) || hook == "none") return type;
  if (hook == "fp16") return at::kHalf;
  if (hook == "bf16") return at::kBFloat16;
  return at::kFloat;
}

std::string listed(const std::vector<NamedTensor>& names, const std::vector<size_t>& indices) {
  constexpr size_t kMost = 10;
  std::string text;
  for (size_t i = 0; i < std::min(indices.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + names[indices[i]].name;
  }
  if (indices.size() > kMost) text += fmt::format(" and {} more", indices.size() - kMost);
  return text;
}

}  // namespace

Reducer::Reducer(comm::ProcessGroup group, std::vector<NamedTensor> parameters,
                 const DdpOptions& options)
    : group_(std::move(group)),
      options_(options),
      frozen_(std::move(parameters)),
      self_(std::make_shared<Reducer*>(this)) {
  take_unfrozen();
}

Reducer::~Reducer() {
  self_.reset();
  for (const at::Tensor& parameter : parameters_) remove_arrival_hook(parameter);
}

// A parameter may be unfrozen in the course of training.
void Reducer::take_unfrozen() {
  const size_t known = parameters_.size();
  for (NamedTensor& parameter : frozen_) {
    if (!parameter.tensor.requires_grad()) continue;
    types_.push_back(type_on_the_way(options_.comm_hook, parameter.tensor.scalar_type()));
    parameters_.push_back(parameter.tensor);
    names_.push_back(parameter);
  }
  if (parameters_.size() == known) return;
  std::erase_if(frozen_, [](const NamedTensor& p) { return p.tensor.requires_grad(); });
  for (size_t index = known; index < parameters_.size(); ++index) {
    add_arrival_hook(parameters_[index], [self = std::weak_ptr(self_), index] {
      if (const auto alive = self.lock()) (*alive)->arrived(index);
    });
  }
  // Gradients arrive about in the opposite order of use.
  std::vector<size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  learnt_ = settled_ = false;
  make_buckets(order);
}

void Reducer::make_buckets(const std::vector<size_t>& order) {
  order_ = order;
  ++layout_;
  buckets_.clear();
  const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(parameters_.size()));
  const auto bytes = [](double mib) { return static_cast<int64_t>(mib * kMiB); };
  for (BucketPlan& plan : plan_buckets(parameters_, order, types_, bytes(options_.first_bucket_mb),
                                       bytes(options_.bucket_cap_mb))) {
    const int64_t members = std::ssize(plan.members);
    Bucket& bucket = buckets_.emplace_back();
    const at::Device device = parameters_[plan.members.front()].device();
    if (device.is_cpu()) {
      bucket.sent = group_.allocate(plan.count + members, plan.type);
      bucket.used = bucket.sent.narrow(0, plan.count, members);
    } else {
      // Read by the process, which would have to wait for the GPU.
      bucket.sent = group_.allocate(plan.count, plan.type, device);
      bucket.used = group_.allocate(members, at::kFloat);
    }
    bucket.sent.zero_();
    bucket.memory = bucket.sent.narrow(0, 0, plan.count);
    for (size_t place = 0; place < plan.members.size(); ++place) {
      const size_t index = plan.members[place];
      slots_[index] = {buckets_.size() - 1, place,
                       view_like(parameters_[index], bucket.memory, plan.offsets[place])};
    }
    bucket.plan = std::move(plan);
  }
  for (size_t index = 0; index < before.size(); ++index) {
    slots_[index].is_summed = before[index].is_summed;
    slots_[index].aside = before[index].aside;
  }
}

void Reducer::begin(bool synchronize) {
  stray_.begin(synchronize);
  if (options_.gradient_reduction == "sum") {
    for (size_t index = 0; index < parameters_.size(); ++index) put_aside(index);
  }
  synchronizing_ = synchronize;
  arrivals_.clear();
  if (!synchronize) return;
  const auto unfrozen = [](const NamedTensor& p) { return p.tensor.requires_grad(); };
  if (std::ranges::any_of(frozen_, unfrozen)) take_unfrozen();
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.launched = false;
    bucket.missing = 0;
    for (const size_t index : bucket.plan.members) {
      slots_[index].arrived = false;
      const bool frozen = !parameters_[index].requires_grad();
      if (frozen) leave_out(index);
      if (!frozen && is_expected(index)) ++bucket.missing;
    }
  }
}

// Of a parameter that was frozen after it was trained nothing is waited for and nothing sent.
void Reducer::leave_out(size_t index) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[index].mutable_grad();
  if (gradient.defined() && gradient.is_alias_of(slots_[index].view)) gradient = gradient.clone();
  slots_[index].view.zero_();
}

// The mean of what is equal on all ranks is that again; its sum is not.
void Reducer::put_aside(size_t index) {
  Slot& slot = slots_[index];
  at::Tensor& gradient = parameters_[index].mutable_grad();
  if (!gradient.defined()) slot.aside.reset();  // zero_grad()
  if (!std::exchange(slot.is_summed, false) || !parameters_[index].requires_grad()) return;
  const at::NoGradGuard no_grad;
  slot.aside = std::exchange(gradient, at::Tensor());
  if (slot.aside.defined() && slot.aside.is_alias_of(slot.view)) slot.aside = slot.aside.clone();
}

// No gradient came in this backward.
void Reducer::take_back(size_t index) {
  Slot& slot = slots_[index];
  at::Tensor& gradient = parameters_[index].mutable_grad();
  if (!slot.aside.defined() || gradient.defined()) return;
  gradient = std::exchange(slot.aside, at::Tensor());
  slot.is_summed = true;
}

void Reducer::end() {
  stray_.end();
  if (synchronizing_) return;
  for (size_t index = 0; index < slots_.size(); ++index) take_back(index);
}

void Reducer::arrived(size_t index) {
  if (stray_.is_stray(names_[index].name)) return;
  if (!synchronizing_) {
    arrivals_.push_back(index);
    return;
  }
  const at::NoGradGuard no_grad;
  Slot& slot = slots_[index];
  Bucket& bucket = buckets_[slot.bucket];
  LEVIN_CHECK(is_expected(index), "strategy.ddp.static_graph",
              "{} has a gradient and had none in the first step; turn --ddp-static-graph off",
              names_[index].name);
  LEVIN_CHECK(
      !bucket.launched, "strategy.ddp.twice",
      "a second gradient came for {} in one backward, after the first was sent to the other "
      "ranks; set --ddp-overlap false",
      names_[index].name);
  at::Tensor& gradient = parameters_[index].mutable_grad();
  fill(index, gradient);
  // What autograd made is let go of at once, and its memory serves the next layer.
  if (types_[index] == parameters_[index].scalar_type()) gradient = slot.view;
  if (std::exchange(slot.arrived, true)) return;
  arrivals_.push_back(index);
  --bucket.missing;
  if (options_.overlap) launch_complete();
}

void Reducer::fill(size_t index, const at::Tensor& gradient) {
  at::Tensor& view = slots_[index].view;
  if (gradient.layout() != at::kStrided) {
    view.copy_(gradient.to_dense());
  } else if (gradient.const_data_ptr() != view.const_data_ptr()) {
    view.copy_(gradient);
  }
}

void Reducer::launch_complete() {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) launch(buckets_[next_++]);
}

void Reducer::launch(Bucket& bucket) {
  std::vector<float> used;
  for (const size_t index : bucket.plan.members) used.push_back(slots_[index].arrived ? 1 : 0);
  bucket.used.copy_(at::tensor(used));
  bucket.launched = true;
  const ReduceOp op = options_.gradient_reduction == "sum" ? ReduceOp::kSum : ReduceOp::kMean;
  bucket.work = group_.all_reduce(bucket.sent, op, comm::Return::kStarted);
  if (!bucket.sent.is_cpu()) {
    bucket.used_work = group_.all_reduce(bucket.used, op, comm::Return::kStarted);
  }
}

// A parameter may hold the gradient of an earlier backward that did not synchronize.
void Reducer::fill_missing(Bucket& bucket, bool counts) {
  for (const size_t index : bucket.plan.members) {
    Slot& slot = slots_[index];
    if (slot.arrived || !parameters_[index].requires_grad()) continue;
    const at::Tensor& gradient = parameters_[index].grad();
    if (gradient.defined()) {
      fill(index, gradient);
      slot.arrived = counts;
    } else {
      slot.view.zero_();
      slot.arrived = counts && slot.aside.defined();
    }
  }
}

bool Reducer::holds_gradients() const {
  return std::ranges::any_of(parameters_, [](const at::Tensor& p) { return p.grad().defined(); }) ||
         std::ranges::any_of(slots_, [](const Slot& slot) { return slot.aside.defined(); });
}

bool Reducer::settle_all() {
  for (size_t i = 0; i < buckets_.size(); ++i) settle(i);
  return unused_.size() < parameters_.size();
}

void Reducer::launch_rest(bool counts) {
  const at::NoGradGuard no_grad;
  for (Bucket& bucket : buckets_) {
    if (!bucket.launched) fill_missing(bucket, counts);
  }
  for (; next_ < buckets_.size(); ++next_) launch(buckets_[next_]);
  unused_.clear();
  synchronizing_ = false;
}

void Reducer::settle(size_t index) {
  const at::NoGradGuard no_grad;
  Bucket& bucket = buckets_[index];
  bucket.work.wait();
  bucket.used_work.wait();
  adopt(bucket);
}

void Reducer::finish() {
  const at::NoGradGuard no_grad;
  settle_unused();
  if (!learnt_) learn_order();
}

std::optional<size_t> Reducer::bucket_of(const at::Tensor& parameter) const {
  for (size_t index = 0; index < parameters_.size(); ++index) {
    if (parameters_[index].is_same(parameter)) return slots_[index].bucket;
  }
  return std::nullopt;
}

void Reducer::skip() {
  synchronizing_ = false;
  for (size_t index = 0; index < slots_.size(); ++index) take_back(index);
}

void Reducer::adopt(Bucket& bucket) {
  const at::Tensor used = bucket.used.to(at::kFloat);
  const float* counts = used.const_data_ptr<float>();
  for (size_t place = 0; place < bucket.plan.members.size(); ++place) {
    const size_t index = bucket.plan.members[place];
    if (counts[place] == 0) {
      take_back(index);
      unused_.push_back(index);
      continue;
    }
    at::Tensor& gradient = parameters_[index].mutable_grad();
    at::Tensor& view = slots_[index].view;
    if (scale_ != 1) view.mul_(scale_);
    if (types_[index] == parameters_[index].scalar_type()) {
      gradient = view;
    } else if (gradient.defined() && gradient.layout() == at::kStrided) {
      gradient.copy_(view);
    } else {
      gradient = view.to(parameters_[index].scalar_type());
    }
    slots_[index].is_summed = true;
    if (slots_[index].aside.defined()) {
      gradient.add_(std::exchange(slots_[index].aside, at::Tensor()));
    }
  }
}

void Reducer::settle_unused() {
  if (options_.static_graph && !settled_) {
    expected_.assign(parameters_.size(), true);
    for (const size_t index : unused_) expected_[index] = false;
    settled_ = true;
  }
  std::erase_if(unused_, [&](size_t index) { return !parameters_[index].requires_grad(); });
  if (unused_.empty() || told_unused_) return;
  std::ranges::sort(unused_);
  const std::string names = listed(names_, unused_);
  LEVIN_CHECK(options_.find_unused_parameters, "strategy.ddp.unused",
              "{} of {} parameters got no gradient on any rank: {}; use them in the loss, freeze "
              "them, or allow it by --ddp-find-unused-parameters true",
              unused_.size(), parameters_.size(), names);
  told_unused_ = true;
  log::warn("ddp: {} of {} parameters got no gradient in this backward: {}", unused_.size(),
            parameters_.size(), names);
}

// Rank 0's order for all: the buckets must be the same everywhere.
void Reducer::learn_order() {
  learnt_ = true;
  std::vector<size_t> order = arrivals_;
  std::vector<bool> known(parameters_.size());
  for (const size_t index : order) known[index] = true;
  for (const size_t index : order_) {
    if (!known[index]) order.push_back(index);
  }
  const std::vector<int64_t> numbers(order.begin(), order.end());
  const at::Tensor agreed = at::tensor(numbers, at::kLong);
  group_.broadcast(agreed, 0);
  const auto* first = agreed.const_data_ptr<int64_t>();
  order.assign(first, first + agreed.numel());
  if (order == order_) return;
  // Gradients lie in the buckets that go.
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
  make_buckets(order);
  for (size_t index = 0; index < parameters_.size(); ++index) {
    const bool held = gradients[index].defined() && types_[index] == gradients[index].scalar_type();
    if (!held) continue;
    fill(index, gradients[index]);
    parameters_[index].mutable_grad() = slots_[index].view;
  }
}

State Reducer::state_dict() const {
  State order;
  for (size_t i = 0; learnt_ && i < order_.size(); ++i) {
    order.set(fmt::format("{:06}", i), names_[order_[i]].name);
  }
  State state;
  return std::move(state.set("order", std::move(order)));
}

void Reducer::load_state_dict(const State& state) {
  std::map<std::string, size_t, std::less<>> places;
  for (size_t index = 0; index < names_.size(); ++index) places[names_[index].name] = index;
  std::vector<size_t> order;
  const State& saved = state.child("order");
  for (const auto& [number, value] : saved.values()) {
    const auto place = places.find(saved.text(number));
    if (place != places.end()) order.push_back(place->second);
  }
  if (order.size() != names_.size()) return;
  make_buckets(order);
  learnt_ = true;
}

}  // namespace levin::ddp
