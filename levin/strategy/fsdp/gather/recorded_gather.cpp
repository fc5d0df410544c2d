#include "levin/strategy/fsdp/gather/recorded_gather.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "levin/base/check.h"
#include "levin/comm/operators.h"
#include "levin/graph/tensors_in.h"
#include "levin/strategy/fsdp/gather/unit_cache.h"
#include "levin/strategy/fsdp/write_watch.h"

namespace levin::fsdp {

using shard::ShardedParameter;

namespace {

/// A parameter of fewer bytes is gathered together with others of its unit: to start a collective
/// takes longer than to copy it.
constexpr int64_t kSmallBytes = 256 << 10;

/// The leaf's rows as one row of elements: what a rank sends.
at::Tensor flat(const at::Tensor& rows) {
  return rows.as_strided({rows.numel()}, {1}, rows.storage_offset());
}

}  // namespace

void RecordedGather::add(const Unit& unit, bool stays) {
  const UnitLayout& layout = unit.layout();
  const auto& parameters = unit.parameters();
  std::vector<Entry*> small;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ShardedParameter* parameter = parameters[i].get();
    const int64_t of_row = parameter->numel() / parameter->sizes().front();
    std::vector<int64_t> counts = layout.rows(i);
    for (int64_t& count : counts) count *= of_row;
    Entry& entry = entries_[parameter];
    entry = {.parameter = parameter,
             .group = unit.shard_group(),
             .counts = std::move(counts),
             .stays = stays};
    all_.push_back(&entry);
    const auto bytes = static_cast<int64_t>(parameter->full().tensor().nbytes());
    if (bytes < kSmallBytes) small.push_back(&entry);
  }
  if (small.size() > 1) {
    for (Entry* entry : small) entry->joined = small;
  }
  largest_ = std::max(largest_, unit.bytes());
}

/// A recording meets the rows here, as the values of the leaf: later the leaf shows its full size.
void RecordedGather::begin() {
  const at::NoGradGuard no_grad;
  for (Entry* entry : all_) entry->rows = flat(entry->parameter->rows());
}

void RecordedGather::drop() {
  for (Entry* entry : all_) entry->full.reset();
  held_in_order_.clear();
  held_ = 0;
}

RecordedGather::Entry* RecordedGather::entry_of(const at::Tensor& tensor) {
  const ShardedParameter* parameter = ShardedParameter::of_values(tensor);
  if (parameter == nullptr) return nullptr;
  const auto found = entries_.find(parameter);
  return found == entries_.end() ? nullptr : &found->second;
}

void RecordedGather::call(graph::OperatorCall& call) {
  const c10::FunctionSchema& schema = call.op().schema();
  std::vector<c10::IValue>& stack = call.stack();
  const size_t first = stack.size() - schema.arguments().size();
  bool reads = false;
  for (size_t i = first; i < stack.size(); ++i) {
    graph::for_each_tensor(stack[i],
                           [&](const at::Tensor& tensor) { reads |= entry_of(tensor) != nullptr; });
  }
  if (!reads) return call.proceed();
  const OperatorAliases::Aliases& aliases = aliases_.of(schema);
  for (const size_t argument : aliases.written) {
    graph::for_each_tensor(stack[first + argument], [&](const at::Tensor& tensor) {
      if (const Entry* entry = entry_of(tensor)) {
        WriteWatch::refuse(*entry->parameter, schema.name());
      }
    });
  }
  // A view of the parameter is no value: who reads it gets a view of what was gathered.
  if (aliases.gives_views_only) return call.proceed_unseen();
  for (size_t i = first; i < stack.size(); ++i) replace_in(stack[i], call);
  call.proceed();
}

void RecordedGather::replace_in(c10::IValue& argument, const graph::OperatorCall& call) {
  bool reads = false;
  graph::for_each_tensor(argument,
                         [&](const at::Tensor& tensor) { reads |= entry_of(tensor) != nullptr; });
  if (!reads) return;
  argument = graph::with_tensors_replaced(argument, [&](const at::Tensor& tensor) {
    Entry* entry = entry_of(tensor);
    return entry == nullptr ? tensor : gathered(*entry, tensor, call);
  });
}

/// Returns what the tensor shows, in the buffer of the gathered parameter.
at::Tensor RecordedGather::gathered(Entry& entry, const at::Tensor& tensor,
                                    const graph::OperatorCall& call) {
  LEVIN_CHECK(tensor.scalar_type() == entry.rows.scalar_type(), "strategy.fsdp.recorded_view",
              "parameter {} of {} is read as {} through a view, which recorded steps cannot gather "
              "where ranks share no memory; set --compile no, or convert it with to()",
              entry.parameter->name(), c10::toString(entry.rows.scalar_type()),
              c10::toString(tensor.scalar_type()));
  at::Tensor view;
  call.run([&] {
    if (!entry.full.defined()) gather(entry);
    view = at::as_strided(entry.full, tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (tensor.is_conj()) view = at::_conj(view);
    if (tensor.is_neg()) view = at::_neg_view(view);
  });
  return view;
}

void RecordedGather::gather(Entry& entry) {
  if (!entry.joined.empty()) {
    gather_joined(entry.joined);
    for (Entry* each : entry.joined) hold(*each);
    return make_room();
  }
  entry.full = at::empty({entry.parameter->numel()}, entry.rows.options());
  comm::call_all_gather(entry.full, entry.rows, entry.counts, entry.group);
  hold(entry);
  make_room();
}

/// One collective for all: each rank sends its rows of them, one behind the other.
void RecordedGather::gather_joined(const std::vector<Entry*>& entries) {
  const Entry& first = *entries.front();
  std::vector<at::Tensor> sent;
  std::vector<int64_t> counts(first.counts.size(), 0);
  for (const Entry* entry : entries) {
    sent.push_back(entry->rows);
    for (size_t rank = 0; rank < counts.size(); ++rank) counts[rank] += entry->counts[rank];
  }
  const int64_t numel = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const at::Tensor received = at::empty({numel}, first.rows.options());
  comm::call_all_gather(received, at::cat(sent), counts, first.group);
  std::vector<std::vector<at::Tensor>> pieces(entries.size());
  int64_t begin = 0;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    for (size_t i = 0; i < entries.size(); ++i) {
      const int64_t count = entries[i]->counts[rank];
      if (count > 0) pieces[i].push_back(received.slice(0, begin, begin + count));
      begin += count;
    }
  }
  for (size_t i = 0; i < entries.size(); ++i) entries[i]->full = at::cat(pieces[i]);
}

void RecordedGather::hold(Entry& entry) {
  if (entry.stays || gathered_bytes_ < 0) return;
  if (const auto held = std::ranges::find(held_in_order_, &entry); held != held_in_order_.end()) {
    held_in_order_.erase(held);  // others of those that are gathered with it had been dropped
    held_ -= static_cast<int64_t>(entry.full.nbytes());
  }
  held_in_order_.push_back(&entry);
  held_ += static_cast<int64_t>(entry.full.nbytes());
}

/// An operator at hand holds what it reads itself.
void RecordedGather::make_room() {
  const int64_t limit =
      std::max(gathered_bytes_ == 0 ? kUnitsAtATime * largest_ : gathered_bytes_, largest_);
  while (held_ > limit && held_in_order_.size() > 1) {
    Entry& oldest = *held_in_order_.front();
    held_in_order_.pop_front();
    held_ -= static_cast<int64_t>(oldest.full.nbytes());
    oldest.full.reset();
  }
}

}  // namespace levin::fsdp
