#include "levin/strategy/fsdp/first_touch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/comm/collectives/announcement.h"

namespace levin::fsdp {
namespace {

constexpr int64_t kUnitsAtATime = 3;  // the one at hand, the one before it and the next

}  // namespace

FirstTouch::FirstTouch(const comm::ProcessGroup& group, Hosts* hosts,
                       const FirstTouchOptions& options)
    : group_(group), hosts_(hosts), options_(options) {}

FirstTouch::~FirstTouch() = default;

void FirstTouch::add(Unit& unit, bool stays) {
  for (const Leaf& leaf : unit.leaves()) {
    places_[leaf.whole.storage().unsafeGetStorageImpl()] = {entries_.size(), &leaf};
  }
  entries_.push_back({.unit = &unit, .stays = stays});
  const int64_t bytes = unit.mapped().defined() ? 0 : unit.bytes();
  largest_ = std::max(largest_, bytes);
  staying_ += stays ? bytes : 0;
  const int64_t wanted = options_.gathered_bytes;
  limit_ = wanted < 0
               ? INT64_MAX
               : staying_ + std::max(wanted == 0 ? kUnitsAtATime * largest_ : wanted, largest_);
}

void FirstTouch::call(graph::OperatorCall& call) {
  const size_t count = call.op().schema().arguments().size();
  const std::vector<c10::IValue>& stack = call.stack();
  if (watches_writes_) check_writes(call, stack);
  look(stack, count, /*note=*/false);
  if (!missing_.empty()) {
    // What else the operator reads is to stay where it is.
    ++operation_;
    look(stack, count, /*note=*/true);
    for (const size_t index : missing_) gather(index);
    missing_.clear();
    prefetch();
  }
  call.proceed();
}

void FirstTouch::look(const std::vector<c10::IValue>& stack, size_t count, bool note) {
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) {
      touch(value.toTensor(), note);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) touch(tensor, note);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) touch(element.toTensor(), note);
      }
    }
  }
}

void FirstTouch::touch(const at::Tensor& tensor, bool note) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (!note && (storage->nbytes() > 0 || tensor.numel() == 0)) return;
  const auto place = places_.find(storage);
  if (place == places_.end()) return;
  const size_t index = place->second.first;
  entries_[index].operation = operation_;
  if (!note && std::ranges::find(missing_, index) == missing_.end()) missing_.push_back(index);
}

void FirstTouch::check_writes(const graph::OperatorCall& call,
                              const std::vector<c10::IValue>& stack) const {
  const auto& arguments = call.op().schema().arguments();
  const size_t first = stack.size() - arguments.size();
  const auto check = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto place = places_.find(tensor.storage().unsafeGetStorageImpl());
    if (place == places_.end()) return;
    const auto& [index, leaf] = place->second;
    LEVIN_FAIL("strategy.fsdp.write",
               "{} writes to {} of unit {} within a forward or backward pass, where it is memory "
               "that all ranks read; write to parameters between steps, or within "
               "levin::WholeScope",
               call.op().schema().name(), leaf->name, entries_[index].unit->name());
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    const c10::IValue& value = stack[first + i];
    if (value.isTensor()) check(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) check(tensor);
    }
  }
}

void FirstTouch::begin(Pass pass) {
  if (!now_.empty()) orders_[static_cast<size_t>(pass_)] = std::exchange(now_, {});
  pass_ = pass;
  now_.clear();
  follows_ = true;
}

bool FirstTouch::has_all() const {
  return std::ranges::all_of(entries_,
                             [](const Entry& entry) { return entry.unit->is_attached(); });
}

void FirstTouch::drop() {
  for (Entry& entry : entries_) give_back(entry);
  gathered_.clear();
}

void FirstTouch::give_back(Entry& entry) {
  if (!std::exchange(entry.is_here, false)) return;
  if (std::exchange(entry.is_coming, false)) entry.work.wait();
  entry.unit->detach();
  if (!entry.memory.defined()) return;
  const auto bytes = entry.memory.numel();
  used_bytes_ -= bytes;
  free_bytes_ += bytes;
  free_.push_back(std::exchange(entry.memory, at::Tensor()));
}

at::Tensor FirstTouch::take_memory(int64_t bytes, at::Device device) {
  auto best = free_.end();
  for (auto each = free_.begin(); each != free_.end(); ++each) {
    const bool fits = each->numel() >= bytes && each->device() == device;
    if (fits && (best == free_.end() || each->numel() < best->numel())) best = each;
  }
  at::Tensor memory;
  if (best != free_.end()) {
    memory = std::move(*best);
    free_.erase(best);
    free_bytes_ -= memory.numel();
  } else {
    // Free buffers that are too small go first.
    while (!free_.empty() && used_bytes_ + free_bytes_ + bytes > limit_) {
      free_bytes_ -= free_.back().numel();
      free_.pop_back();
    }
    memory = at::empty({bytes}, at::TensorOptions(at::kByte).device(device));
  }
  used_bytes_ += memory.numel();
  most_bytes_ = std::max(most_bytes_, used_bytes_ + free_bytes_);
  return memory;
}

bool FirstTouch::make_room_for(size_t index) {
  const Unit& unit = *entries_[index].unit;
  const int64_t bytes = unit.mapped().defined() ? 0 : unit.bytes();
  for (auto each = gathered_.begin(); used_bytes_ + bytes > limit_ && each != gathered_.end();) {
    Entry& entry = entries_[*each];
    if (entry.stays || entry.is_coming || entry.operation == operation_) {
      ++each;
      continue;
    }
    give_back(entry);
    each = gathered_.erase(each);
  }
  return used_bytes_ + bytes <= limit_;
}

void FirstTouch::start(size_t index) {
  Entry& entry = entries_[index];
  Unit& unit = *entry.unit;
  const at::NoGradGuard no_grad;
  const comm::LabelScope label(static_cast<int64_t>(index) + 1);
  if (unit.part_of_place().defined()) {
    entry.work = hosts_->across.all_gather(unit.part_of_place(), unit.own(), unit.runs_of_place(),
                                           comm::Return::kStarted);
  } else {
    entry.memory = take_memory(unit.bytes(), unit.own().device());
    entry.work = group_.all_gather(entry.memory.narrow(0, 0, unit.bytes()).view(unit.type()),
                                   unit.own(), unit.runs(), comm::Return::kStarted);
    gathered_.push_back(index);
  }
  entry.is_here = entry.is_coming = true;
  ++num_gathers_;
}

void FirstTouch::arrive(size_t index) {
  Entry& entry = entries_[index];
  Unit& unit = *entry.unit;
  entry.is_coming = false;
  entry.work.wait();
  if (unit.part_of_place().defined()) {
    const comm::LabelScope label(static_cast<int64_t>(index) + 1);
    hosts_->local.barrier();  // the others' parts
    return unit.attach(unit.mapped());
  }
  unit.attach(entry.memory.narrow(0, 0, unit.bytes()).view(unit.type()));
}

void FirstTouch::gather(size_t index) {
  RECORD_FUNCTION("levin::fsdp::gather_unit", std::vector<c10::IValue>());
  Entry& entry = entries_[index];
  const auto& order = orders_[static_cast<size_t>(pass_)];
  follows_ = follows_ && now_.size() < order.size() && order[now_.size()] == index;
  now_.push_back(index);
  if (!entry.is_coming) {
    int64_t wanted = static_cast<int64_t>(index);
    if (pass_ == Pass::kEvaluation) exchange_wishes(static_cast<int64_t>(index), &wanted);
    make_room_for(index);
    start(index);
  }
  arrive(index);
}

/// The next of the last pass, while this one is as that was.
void FirstTouch::prefetch() {
  const auto& order = orders_[static_cast<size_t>(pass_)];
  if (!follows_ || pass_ == Pass::kEvaluation || now_.size() >= order.size()) return;
  const size_t next = order[now_.size()];
  if (entries_[next].is_here || !make_room_for(next)) return;
  start(next);
}

bool FirstTouch::exchange_wishes(int64_t mine, int64_t* wanted) {
  const at::Tensor all = at::empty({group_.size()}, at::kLong);
  const at::Tensor own = at::empty({1}, at::kLong);
  *own.mutable_data_ptr<int64_t>() = mine;
  group_.all_gather(all, own);
  const int64_t* wishes = all.const_data_ptr<int64_t>();
  *wanted = -1;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    if (wishes[rank] < 0) continue;
    LEVIN_CHECK(*wanted < 0 || *wanted == wishes[rank], "comm.mismatch",
                "rank {} computes with unit {} in an evaluation and another one with {}; all ranks "
                "must run the same code there",
                rank, entries_[static_cast<size_t>(wishes[rank])].unit->name(),
                entries_[static_cast<size_t>(*wanted)].unit->name());
    *wanted = wishes[rank];
  }
  return *wanted >= 0;
}

void FirstTouch::end_evaluation() {
  begin(Pass::kEvaluation);
  int64_t wanted = -1;
  while (exchange_wishes(-1, &wanted)) {
    const auto index = static_cast<size_t>(wanted);
    if (entries_[index].is_here) {
      std::erase(gathered_, index);
      give_back(entries_[index]);
    }
    ++operation_;
    make_room_for(index);
    start(index);
    arrive(index);
  }
  drop();  // a rank that was here earlier has others
  begin(Pass::kForward);
}

}  // namespace levin::fsdp
