#include "levin/strategy/ddp/reducer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/compile/host_part.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/arrivals.h"

namespace levin::ddp {
namespace {

at::ScalarType type_on_the_way(const std::string& hook, at::ScalarType type) {
  if (!c10::isFloatingType(type) || hook == "none") return type;
  if (hook == "fp16") return at::kHalf;
  if (hook == "bf16") return at::kBFloat16;
  return at::kFloat;
}

int64_t bytes(double mib) { return static_cast<int64_t>(mib * (1 << 20)); }

}  // namespace

Reducer::Reducer(comm::ProcessGroup group, std::vector<NamedTensor> parameters,
                 const DdpOptions& options, std::unique_ptr<Carrier> carrier, bool agrees)
    : group_(std::move(group)),
      options_(options),
      carrier_(std::move(carrier)),
      agrees_(agrees),
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
    const at::ScalarType type = type_on_the_way(options_.comm_hook, parameter.tensor.scalar_type());
    carrier_->add(parameter.tensor, type);
    planned_.push_back({parameter.tensor.numel(), type});
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
  slots_.resize(parameters_.size());
  // Gradients arrive about in the opposite order of use.
  order_.resize(parameters_.size());
  std::iota(order_.rbegin(), order_.rend(), size_t{0});
  learnt_ = settled_ = false;
  if (carrier_->tells_used()) make_buckets(order_);
}

void Reducer::make_buckets(const std::vector<size_t>& order) {
  const std::vector<comm::BucketPlan> plan = comm::plan_buckets(
      planned_, order,
      {.first_bytes = bytes(options_.first_bucket_mb), .bytes = bytes(options_.bucket_cap_mb)});
  ++layout_;
  buckets_.clear();
  for (Slot& slot : slots_) slot.bucket.reset();
  for (const comm::BucketPlan& planned : plan) {
    for (const size_t index : planned.members) slots_[index].bucket = buckets_.size();
    buckets_.push_back({planned.members});
  }
  carrier_->lay_out(plan);
}

/// Chooses the parameters that are trained now and that some rank uses.
void Reducer::choose_members() {
  std::vector<size_t> members;
  for (const size_t index : order_) {
    const Use use = slots_[index].use;
    if (is_trained(index) && (use == Use::kHere || use == Use::kElsewhere)) {
      members.push_back(index);
    }
  }
  size_t known = 0;
  for (const Bucket& bucket : buckets_) known += bucket.members.size();
  const bool are_planned =
      std::ranges::all_of(members, [&](size_t index) { return slots_[index].bucket.has_value(); });
  if (known != members.size() || !are_planned) make_buckets(members);
}

void Reducer::begin(bool synchronize, bool overlaps) {
  stray_.begin(synchronize);
  drop_launched();
  if (options_.gradient_reduction == "sum") {
    add_condition();
    for (size_t index = 0; index < parameters_.size(); ++index) put_aside(index);
  }
  synchronizing_ = synchronize;
  overlaps_ = overlaps && options_.overlap && carrier_->overlaps();
  arrivals_.clear();
  if (!synchronize) return;
  const auto unfrozen = [](const NamedTensor& p) { return p.tensor.requires_grad(); };
  if (std::ranges::any_of(frozen_, unfrozen)) take_unfrozen();
  next_ = 0;
  if (!carrier_->tells_used()) {
    learning_ = !agrees_;
    for (size_t index = 0; index < slots_.size(); ++index) {
      learning_ |= is_trained(index) && slots_[index].use == Use::kUnknown;
    }
    if (!learning_) choose_members();
  }
  for (size_t index = 0; index < slots_.size(); ++index) {
    slots_[index].arrived = false;
    slots_[index].was_empty = !parameters_[index].grad().defined();
  }
  for (Bucket& bucket : buckets_) {
    bucket.missing = 0;
    for (const size_t index : bucket.members) {
      if (!is_trained(index)) {
        const at::NoGradGuard no_grad;
        carrier_->leave_out(index);
      } else if (is_expected(index)) {
        ++bucket.missing;
      }
    }
  }
}

bool Reducer::is_expected(size_t index) const {
  if (!carrier_->tells_used()) return learning_ || slots_[index].use == Use::kHere;
  return !settled_ || expected_[index];
}

// The mean of what is equal on all ranks is that again; its sum is not.
void Reducer::put_aside(size_t index) {
  Slot& slot = slots_[index];
  const bool has_gradient = parameters_[index].grad().defined();
  if (!has_gradient) slot.aside.reset();  // zero_grad()
  if (!std::exchange(slot.is_summed, false) || !is_trained(index) || !has_gradient) return;
  const at::NoGradGuard no_grad;
  slot.aside = carrier_->put_aside(index);
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
  note_for_replays();
}

/// A recorded backward puts aside what the steps before it have left.
void Reducer::add_condition() {
  graph::HostPart* recording = graph::HostPart::current();
  if (recording == nullptr || !recording->is_first(this)) return;
  recording->depends_on("how many gradients are sums over the ranks",
                        [self = std::weak_ptr(self_)] {
                          const auto alive = self.lock();
                          return alive == nullptr ? 0 : (*alive)->num_summed();
                        });
}

int64_t Reducer::num_summed() const { return std::ranges::count_if(slots_, &Slot::is_summed); }

/// A replay moves gradients, and not what is known of them here.
void Reducer::note_for_replays() {
  graph::HostPart* recording = graph::HostPart::current();
  if (recording == nullptr || options_.gradient_reduction != "sum") return;
  std::vector<bool> are_summed;
  for (const Slot& slot : slots_) are_summed.push_back(slot.is_summed);
  recording->after([self = std::weak_ptr(self_), are_summed] {
    const auto alive = self.lock();
    for (size_t index = 0; alive != nullptr && index < are_summed.size(); ++index) {
      (*alive)->slots_[index].is_summed = are_summed[index];
    }
  });
}

void Reducer::arrived(size_t index) {
  if (stray_.is_stray(names_[index].name)) return;
  if (!synchronizing_) {
    arrivals_.push_back(index);
    return;
  }
  const at::NoGradGuard no_grad;
  Slot& slot = slots_[index];
  check_expected(index);
  LEVIN_CHECK(learning_ || !buckets_[*slot.bucket].launched, "strategy.ddp.twice",
              "parameter {} got a second gradient in one backward after its first was sent to the "
              "other ranks; set --ddp-overlap false",
              names_[index].name);
  carrier_->put(index, /*is_new=*/slot.was_empty);
  if (std::exchange(slot.arrived, true)) return;
  arrivals_.push_back(index);
  if (learning_) return;
  --buckets_[*slot.bucket].missing;
  if (overlaps_) launch_complete();
}

void Reducer::launch_complete() {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) launch(next_++, /*counts=*/true);
}

void Reducer::launch(size_t index, bool counts) {
  Bucket& bucket = buckets_[index];
  fill_missing(bucket, counts);
  std::vector<float> used;
  for (const size_t member : bucket.members) used.push_back(slots_[member].arrived ? 1 : 0);
  bucket.launched = true;
  carrier_->start(index, used);
}

/// A backward that threw has left them under way, in memory that gets the next gradients.
void Reducer::drop_launched() {
  for (size_t index = 0; index < buckets_.size(); ++index) {
    if (!std::exchange(buckets_[index].launched, false)) continue;
    const graph::UnseenScope unseen;
    carrier_->wait(index);
  }
}

/// Fills the place of a gradient that did not arrive with the gradient of earlier batches, or with
/// zeros.
void Reducer::fill_missing(Bucket& bucket, bool counts) {
  for (const size_t index : bucket.members) {
    Slot& slot = slots_[index];
    if (slot.arrived || !is_trained(index)) continue;
    slot.arrived = counts && is_here(index);
    carrier_->put(index, /*is_new=*/false);
  }
}

bool Reducer::is_here(size_t index) const {
  const Slot& slot = slots_[index];
  return slot.arrived || slot.aside.defined() || parameters_[index].grad().defined();
}

bool Reducer::holds_gradients() const {
  for (size_t index = 0; index < slots_.size(); ++index) {
    if (parameters_[index].grad().defined() || slots_[index].aside.defined()) return true;
  }
  return false;
}

bool Reducer::settle_all() {
  for (size_t i = 0; i < buckets_.size(); ++i) settle(i);
  return unused_.size() < parameters_.size();
}

void Reducer::launch_rest(bool counts) {
  const at::NoGradGuard no_grad;
  unused_.clear();
  if (!carrier_->tells_used()) {
    learning_ ? agree_on_use() : check_use();
    learning_ = false;
  }
  for (; next_ < buckets_.size(); ++next_) launch(next_, counts);
  synchronizing_ = false;
}

void Reducer::settle(size_t index) {
  const at::NoGradGuard no_grad;
  carrier_->wait(index);
  buckets_[index].launched = false;
  for (const size_t member : buckets_[index].members) {
    if (!carrier_->take(member, scale_)) {
      take_back(member);
      unused_.push_back(member);
      continue;
    }
    Slot& slot = slots_[member];
    slot.is_summed = true;
    if (slot.aside.defined()) {
      parameters_[member].mutable_grad().add_(std::exchange(slot.aside, at::Tensor()));
    }
  }
}

void Reducer::finish() {
  const at::NoGradGuard no_grad;
  for (size_t index = 0; index < slots_.size(); ++index) {
    if (slots_[index].use != Use::kNowhere || !is_trained(index)) continue;
    take_back(index);
    unused_.push_back(index);
  }
  settle_unused();
  if (carrier_->tells_used() && !std::exchange(learnt_, true)) {
    const std::vector<size_t> order = agree_on_order(group_, arrivals_, order_);
    if (order != order_) make_buckets(order_ = order);
  }
  note_for_replays();
}

std::optional<size_t> Reducer::bucket_of(const at::Tensor& parameter) const {
  for (size_t index = 0; index < parameters_.size(); ++index) {
    if (parameters_[index].is_same(parameter)) return slots_[index].bucket;
  }
  return std::nullopt;
}

void Reducer::skip() {
  synchronizing_ = learning_ = false;
  for (size_t index = 0; index < slots_.size(); ++index) take_back(index);
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
  order_ = std::move(order);
  learnt_ = true;
  if (carrier_->tells_used()) make_buckets(order_);
}

}  // namespace levin::ddp
