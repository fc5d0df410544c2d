// Records an operator's results as values: new memory, views of old memory, and what it wrote.
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/graph.h"
#include "levin/graph/record/recorder_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

/// A tensor that an operator returned; whole and index where it is one of a list.
struct Result {
  const at::Tensor* tensor = nullptr;  ///< none: a number of the host
  size_t index = 0;
};

using Results = c10::SmallVector<Result, 4>;

/// They point into the stack.
Results results_of(const OperatorInfo& info, const std::vector<c10::IValue>& stack) {
  Results results;
  const size_t count = info.is_result.size();
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    if (!info.is_result[i]) continue;
    if (value.isTensor()) {
      results.push_back({.tensor = &value.toTensor()});
    } else if (value.isTensorList()) {
      size_t index = 0;
      for (const c10::IValue& element : value.toListRef()) {
        results.push_back({.tensor = &element.toTensor(), .index = index++});
      }
    } else {
      results.push_back({});
    }
  }
  return results;
}

}  // namespace

const Node* Recorder::Impl::add_call(Call& call, const std::vector<c10::IValue>& stack) {
  const OperatorInfo& info = *call.info;
  const Results results = results_of(info, stack);
  const auto is_known = [&](const Result& result) {
    if (result.tensor == nullptr || !result.tensor->defined() || !result.tensor->has_storage()) {
      return false;
    }
    const Alias* alias =
        aliases.knows_storage(*result.tensor) ? aliases.find(*result.tensor) : nullptr;
    return alias != nullptr && alias->is_newest();
  };
  const bool has_effect = results.empty() || !info.written.empty() || info.is_random;
  if (!has_effect && std::ranges::all_of(results, is_known)) return nullptr;  // such as detach

  if (info.is_random)
    call.arguments.emplace_back(random != nullptr ? *random : graph.random_state());
  if (info.is_wait) end_wait(call);
  const size_t num_outputs = results.size() + call.written.size() + (info.is_random ? 1 : 0);
  Node& node = graph.insert_call(info, call.arguments, num_outputs);
  for (size_t i = 0; i < results.size(); ++i) {
    ValueType& type = node.outputs_[i]->type_;
    if (results[i].tensor != nullptr) {
      type.assign(*results[i].tensor);
    } else {
      type.kind = ValueKind::kHost;
    }
  }
  for (size_t i = 0; i < call.written.size(); ++i) {
    node.outputs_[results.size() + i]->type_.assign(call.written[i]);
  }
  if (info.is_random) {
    random = node.outputs_.back();
    random->type_ = {.kind = ValueKind::kRandom};
  }
  note_frames(call, node);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].tensor != nullptr && results[i].tensor->defined()) {
      add_result(call, *node.outputs_[i], *results[i].tensor, results[i].index);
    }
  }
  add_written(call, node, results.size());
  if (info.is_start) add_start(call, node);
  if (info.is_host_read) {
    node.host_read_ = std::make_shared<const HostRead>(HostRead::of(info.op, stack));
  }
  if (options.watch_host && info.is_random) note_draws();
  return &node;
}

/// Called before its writes add nodes: the expected recording has them in this order.
void Recorder::Impl::note_frames(Call& call, Node& node) {
  const bool is_other = is_unexpected(node) || std::exchange(met_other_state, false);
  if (is_other && call.frames.empty()) call.frames = torch::unwind::unwind();
  if (is_expected_result) frames_of_results.emplace(&node, torch::unwind::unwind());
  if (!call.frames.empty()) frames.emplace_back(&node, std::move(call.frames));
}

/// In new memory, or in that which an argument looks at.
void Recorder::Impl::add_result(const Call& call, Value& value, const at::Tensor& tensor,
                                size_t index) {
  LEVIN_CHECK(tensor.layout() == at::kStrided && tensor.has_storage(), "graph.record.layout",
              "{} gave a tensor of layout {}, wanted a strided one", call.info->name,
              c10::str(tensor.layout()));
  if (!aliases.knows_storage(tensor)) {
    Region& region = *aliases.add_base(tensor, value).region;
    // Only in memory of its own can the host have written without an operator.
    region.is_unwritten =
        call.info->makes_unwritten && tensor.numel() != 0 && !tensor.device().is_xla();
    note_contents(call, region);
    return;
  }
  if (Alias* known = aliases.find(tensor)) {
    if (!known->is_newest()) known->set(value);
    return;
  }
  for (const Call::Read& read : call.reads) {
    Alias* whole = read.alias;
    if (whole->geometry.storage != tensor.storage().unsafeGetStorageImpl()) continue;
    const bool by_operator = &read == call.reads.begin() && call.info->returns_view;
    if (!by_operator) check_strided(whole->geometry, Geometry::of(tensor));
    const Node* node = by_operator ? &value.node() : nullptr;
    aliases.add_view(tensor, *whole, {.node = node, .result = index}, &value);
    return;
  }
  // Two results in one new memory, or memory that no argument has.
  if (aliases.overlapping(Geometry::of(tensor)).empty()) {
    note_contents(call, *aliases.add_base(tensor, value).region);
  } else {
    alias_of(tensor).set(value);
  }
}

/// An argument that was written has a new value; one that an out= operator resized, new memory.
void Recorder::Impl::add_written(Call& call, Node& node, size_t first_output) {
  size_t i = 0;
  for (const Call::Read& read : call.reads) {
    if (!read.is_written) continue;
    const at::Tensor& tensor = call.written[i];
    Value& value = *node.outputs_[first_output + i++];
    if (call.info->is_start) continue;  // it is written when the wait ends
    if (read.alias->geometry.is_of(tensor)) {
      write(*read.alias, value);
      note_contents(call, *read.alias->region);
      continue;
    }
    aliases.forget(tensor);
    note_contents(call, *aliases.add_base(tensor, value).region);
  }
}

}  // namespace levin::graph
