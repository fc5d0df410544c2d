#include "levin/strategy/fsdp/gather/unit_cache.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/comm/collectives/announcement.h"

namespace levin::fsdp {

std::vector<int64_t> even_parts(int64_t count, int64_t num_parts) {
  std::vector<int64_t> parts;
  for (int64_t i = 0; i < num_parts; ++i) {
    parts.push_back(count * (i + 1) / num_parts - count * i / num_parts);
  }
  return parts;
}

UnitCache::UnitCache(const comm::ProcessGroup& group, int64_t gathered_bytes)
    : group_(group), gathered_bytes_(gathered_bytes) {}

size_t UnitCache::add(const std::vector<UnitMemory*>& of_unit, size_t num_needed,
                      const Resharding& resharding) {
  const size_t first = entries_.size();
  int64_t bytes = 0;
  for (size_t i = 0; i < of_unit.size(); ++i) {
    if (i < num_needed) bytes += of_unit[i]->buffer_bytes();
    entries_.push_back({.unit = of_unit[i], .resharding = resharding});
  }
  largest_ = std::max(largest_, bytes);
  staying_ += resharding.stays ? bytes : 0;
  limit_ = gathered_bytes_ < 0 ? INT64_MAX
                               : staying_ + std::max(gathered_bytes_ == 0 ? kUnitsAtATime * largest_
                                                                          : gathered_bytes_,
                                                     largest_);
  return first;
}

void UnitCache::clear() {
  drop();
  entries_.clear();
  free_.clear();  // of other sizes than what comes next
  free_bytes_ = part_bytes_ = 0;
  for (std::vector<size_t>& order : orders_) order.clear();
  now_.clear();
  expected_.reset();
  follows_ = false;
  largest_ = staying_ = 0;
}

void UnitCache::begin(Pass pass) {
  if (!now_.empty()) orders_[static_cast<size_t>(pass_)] = std::exchange(now_, {});
  note_in_vain();
  pass_ = pass;
  follows_ = true;
  expected_.reset();
}

void UnitCache::note_in_vain() {
  for (Entry& entry : entries_) {
    if (!entry.is_coming || !std::exchange(entry.is_for_backward, false)) continue;
    entry.was_in_vain = true;
    ++num_in_vain_;
  }
}

void UnitCache::expect(std::vector<size_t> order) {
  expected_ = std::move(order);
  next_ = 0;
}

void UnitCache::drop() {
  note_in_vain();
  for (Entry& entry : entries_) {
    give_back(entry);
    entry.has_part = false;
  }
  gathered_.clear();
}

void UnitCache::give_back(Entry& entry) {
  if (!std::exchange(entry.is_here, false)) return;
  if (std::exchange(entry.is_coming, false)) entry.work.wait();
  entry.unit->release();
  if (!entry.buffer.defined()) return;
  const auto bytes = entry.buffer.numel();
  used_bytes_ -= bytes;
  free_bytes_ += bytes;
  free_.push_back(std::exchange(entry.buffer, at::Tensor()));
}

/// Keeps this rank's part of a gathered unit, where neighbouring ranks keep parts of it.
void UnitCache::keep_part(Entry& entry) {
  const comm::ProcessGroup& near = entry.resharding.near;
  if (near.size() == 1 || entry.has_part) return;
  const std::vector<int64_t> parts = even_parts(entry.unit->bytes(), near.size());
  const auto own = parts.begin() + near.rank();
  const at::Tensor values =
      entry.buffer.narrow(0, std::accumulate(parts.begin(), own, int64_t{0}), *own);
  if (!entry.part.defined()) {
    entry.part = at::empty_like(values);
    part_bytes_ += *own;
    note_memory();
  }
  entry.part.copy_(values);
  entry.has_part = true;
}

void UnitCache::note_memory() {
  most_bytes_ = std::max(most_bytes_, used_bytes_ + free_bytes_ + part_bytes_);
}

at::Tensor UnitCache::take_buffer(int64_t bytes, at::Device device) {
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
  note_memory();
  return memory;
}

bool UnitCache::make_room_for(size_t index) {
  const int64_t bytes = entries_[index].unit->buffer_bytes();
  for (auto each = gathered_.begin(); used_bytes_ + bytes > limit_ && each != gathered_.end();) {
    Entry& entry = entries_[*each];
    if (entry.resharding.stays || entry.is_coming || entry.operation == operation_) {
      ++each;
      continue;
    }
    if (pass_ == Pass::kForward) keep_part(entry);
    give_back(entry);
    each = gathered_.erase(each);
  }
  return used_bytes_ + bytes <= limit_;
}

void UnitCache::start(size_t index) {
  Entry& entry = entries_[index];
  UnitMemory& unit = *entry.unit;
  const comm::LabelScope label(static_cast<int64_t>(index) + 1);
  if (const int64_t bytes = unit.buffer_bytes(); bytes > 0) {
    entry.buffer = take_buffer(bytes, unit.parameters().front()->rows().device());
    gathered_.push_back(index);
  }
  entry.is_near = entry.has_part;
  if (entry.is_near) {
    comm::ProcessGroup& near = entry.resharding.near;
    entry.work = near.all_gather(entry.buffer.narrow(0, 0, unit.bytes()), entry.part,
                                 even_parts(unit.bytes(), near.size()), comm::Return::kAsync);
    num_near_bytes_ += unit.bytes();
  } else {
    entry.work = unit.start(entry.buffer);
  }
  entry.is_here = entry.is_coming = true;
  entry.is_for_backward = pass_ == Pass::kBackward;
  ++num_gathers_;
  num_bytes_ += unit.bytes();
}

void UnitCache::arrive(size_t index) {
  Entry& entry = entries_[index];
  entry.is_coming = false;
  entry.work.wait();
  const comm::LabelScope label(static_cast<int64_t>(index) + 1);
  entry.is_near ? entry.unit->show(entry.buffer) : entry.unit->finish(entry.buffer);
}

void UnitCache::gather(std::span<const size_t> numbers) {
  ++operation_;
  for (const size_t index : numbers) entries_[index].operation = operation_;
  bool gathers = false;
  for (const size_t index : numbers) {
    if (is_here(index)) continue;
    gather(index);
    gathers = true;
  }
  if (gathers) prefetch();
}

void UnitCache::gather(size_t index) {
  RECORD_FUNCTION("levin::fsdp::gather_unit", std::vector<c10::IValue>());
  note_gathered(index);
  named([&] {
    if (!entries_[index].is_coming) {
      if (pass_ == Pass::kEvaluation) exchange_wishes(static_cast<int64_t>(index));
      make_room_for(index);
      start(index);
    }
    arrive(index);
  });
}

void UnitCache::note_gathered(size_t index) {
  const auto& order = orders_[static_cast<size_t>(pass_)];
  follows_ = follows_ && now_.size() < order.size() && order[now_.size()] == index;
  now_.push_back(index);
  if (pass_ == Pass::kBackward) entries_[index].was_in_vain = false;
  if (!expected_) return;
  const auto found =
      std::find(expected_->begin() + static_cast<int64_t>(next_), expected_->end(), index);
  if (found != expected_->end()) next_ = static_cast<size_t>(found - expected_->begin()) + 1;
}

/// In backward, of what its graph reads, what is not here; else what the last pass took next, while
/// this one is as that was.
std::optional<size_t> UnitCache::next_expected() const {
  if (expected_) {
    for (size_t i = next_; i < expected_->size(); ++i) {
      const Entry& entry = entries_[(*expected_)[i]];
      if (!entry.is_here && !entry.was_in_vain) return (*expected_)[i];
    }
    return std::nullopt;
  }
  const auto& order = orders_[static_cast<size_t>(pass_)];
  if (!follows_ || pass_ == Pass::kEvaluation || now_.size() >= order.size()) return std::nullopt;
  return order[now_.size()];
}

void UnitCache::prefetch() {
  const std::optional<size_t> next = next_expected();
  if (!next || entries_[*next].is_here || !make_room_for(*next)) return;
  start(*next);
}

std::string UnitCache::with_names(std::string text) const {
  constexpr std::string_view kNumber = " for number ";
  for (size_t at = text.find(kNumber); at != std::string::npos; at = text.find(kNumber, at + 1)) {
    const size_t first = at + kNumber.size(), end = text.find_first_not_of("0123456789", first);
    int64_t number = 0;
    from_text(std::string_view(text).substr(first, end - first), number);
    --number;
    if (number < 0 || number >= std::ssize(entries_)) continue;
    const UnitMemory& unit = *entries_[static_cast<size_t>(number)].unit;
    constexpr size_t kShown = 4;
    std::vector<std::string> names;
    for (const auto* parameter : unit.parameters()) names.push_back(parameter->name());
    if (names.size() > kShown) {
      names.resize(kShown);
      names.emplace_back("...");
    }
    text.replace(at, std::min(end, text.size()) - at,
                 fmt::format(" for unit {} (parameters {})", unit.parameters().front()->unit_name(),
                             fmt::join(names, ", ")));
  }
  return text;
}

const std::string& UnitCache::unit_name(size_t number) const {
  return entries_[number].unit->parameters().front()->unit_name();
}

std::optional<size_t> UnitCache::exchange_wishes(int64_t mine) {
  const at::Tensor all = at::empty({group_.size()}, at::kLong);
  const at::Tensor own = at::empty({1}, at::kLong);
  *own.mutable_data_ptr<int64_t>() = mine;
  group_.all_gather(all, own);
  const int64_t* wishes = all.const_data_ptr<int64_t>();
  std::optional<size_t> wanted;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    if (wishes[rank] < 0) continue;
    const auto wish = static_cast<size_t>(wishes[rank]);
    LEVIN_CHECK(!wanted || *wanted == wish, "comm.mismatch",
                "during evaluation, rank {} computes with unit {} but another rank with {}; all "
                "ranks must run the same code",
                rank, unit_name(wish), unit_name(*wanted));
    wanted = wish;
  }
  return wanted;
}

void UnitCache::end_evaluation() {
  begin(Pass::kEvaluation);
  while (const std::optional<size_t> wanted = exchange_wishes(-1)) {
    if (entries_[*wanted].is_here) {
      std::erase(gathered_, *wanted);
      give_back(entries_[*wanted]);
    }
    ++operation_;
    make_room_for(*wanted);
    start(*wanted);
    arrive(*wanted);
  }
  drop();  // a rank that was here earlier has others
  begin(Pass::kForward);
}

}  // namespace levin::fsdp
