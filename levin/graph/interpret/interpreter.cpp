#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <unordered_map>

#include "levin/base/check.h"
#include "levin/graph/interpret/interpreter_impl.h"
#include "levin/graph/interpret/stack_impl.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/text/text_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {

void Run::bind(const std::vector<at::Tensor>& inputs) {
  const std::vector<Node*> placeholders = graph_.find_nodes(Opcode::kPlaceholder);
  LEVIN_CHECK(inputs.size() == placeholders.size(), "graph.input", "got {} inputs, wanted {}",
              inputs.size(), placeholders.size());
  for (size_t i = 0; i < inputs.size(); ++i) bind(*placeholders[i], inputs[i]);
  for (const Node* node : graph_.find_nodes(Opcode::kGetAttr)) {
    const bool is_unused = node->output().users().empty();
    LEVIN_CHECK(node->tensor().defined() || is_unused, "graph.state",
                "no tensor is bound to {}; bind one, or load the graph with its state",
                node->name());
    bind(*node, node->tensor());
  }
  separate_overlapping();
  for (const Update& update : graph_.updates()) {
    if (!update.is_gradient) updated_.insert(update.target);
  }
}

void Run::bind(const Node& node, const at::Tensor& tensor) {
  const Value& value = node.output();
  const ValueType& wanted = value.type();
  const ValueType came = ValueType::of(tensor);
  const bool is_known =
      wanted.dtype != at::ScalarType::Undefined || wanted.kind == ValueKind::kUndefined;
  LEVIN_CHECK(!is_known || (came.kind == wanted.kind && came.dtype == wanted.dtype &&
                            came.device == wanted.device && came.sizes == wanted.sizes),
              "graph.input", "{} is {}, wanted {}; trace the function again for it", node.name(),
              text_of(came), text_of(wanted));
  at::Tensor bound = tensor;
  if (is_known && came.strides != wanted.strides) {
    bound = at::empty_strided(wanted.sizes, wanted.strides, tensor.options()).copy_(tensor);
  }
  targets_[&value] = tensor;
  store(value, bound, new_memory(&value));
}

/// Inputs that have bytes in common are not written to.
void Run::separate_overlapping() {
  std::vector<std::pair<const char*, const Value*>> starts;
  for (const auto& [value, slot] : slots_) {
    if (slot.tensor.defined() && slot.tensor.numel() != 0) {
      starts.emplace_back(static_cast<const char*>(slot.tensor.const_data_ptr()), value);
    }
  }
  std::ranges::sort(starts);
  const char* end = nullptr;
  const Value* widest = nullptr;
  for (const auto& [start, value] : starts) {
    const at::Tensor& tensor = slots_.at(value).tensor;
    if (start < end) {
      shared_.insert(value);
      shared_.insert(widest);
    }
    const char* own_end = start + at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                                                   tensor.itemsize());
    if (own_end <= end) continue;
    end = own_end;
    widest = value;
  }
}

void Run::store(const Value& value, const at::Tensor& tensor, size_t memory) {
  const size_t num_uses = value.users().size();
  if (num_uses == 0) return;
  slots_[&value] = {tensor, liveness_.make(memory, num_uses)};
}

size_t Run::new_memory(const Value* input) {
  inputs_.push_back(input);
  return liveness_.add_memory();
}

void Run::use(const Value& value, std::vector<Used>& used) {
  Slot& slot = slots_.at(&value);
  liveness_.use(slot.live);
  used.push_back({&value, slot.tensor, slot.live.memory});
}

/// The tensor that an operator may write to: the given one if nobody else reads that memory later.
at::Tensor Run::writable(const Value& value, size_t& memory) {
  const Slot& slot = slots_.at(&value);
  memory = slot.live.memory;
  const Value* input = inputs_[memory];
  const bool is_given =
      input == nullptr || (options_.donate && updated_.contains(input) && !shared_.contains(input));
  if (is_given && liveness_.may_write(slot.live)) return slot.tensor;
  memory = new_memory();
  return copy_of(slot.tensor);
}

void Run::run(const Node& node) {
  const OperatorInfo& info = info_of(node);
  std::vector<Used> used;
  liveness_.begin_operator();
  for (size_t i = 0; i < info.num_parameters(); ++i) {
    for_each_value(node.arguments()[i], [&](const Value& value) { use(value, used); });
  }
  std::vector<at::Tensor> written;
  std::vector<size_t> written_memories;
  torch::jit::Stack stack = arguments_of(node, written, written_memories);
  info.op.callBoxed(&stack);

  std::vector<at::Tensor> results;
  append_results(info, stack, results);
  const size_t num_results = results.size();
  results.insert(results.end(), written.begin(), written.end());
  if (info.is_random) results.emplace_back();
  LEVIN_CHECK(results.size() == node.outputs().size(), "graph.interpret",
              "{} returned {} values, wanted {} as in the recording", info.name, results.size(),
              node.outputs().size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    const bool is_written = i >= num_results;
    const size_t memory =
        is_written ? written_memories[i - num_results] : memory_of(results[i], used);
    store(node.output(i), results[i], memory);
  }
  if (options_.observe) options_.observe(node, results);
  for (const Used& one : used) {
    const auto slot = slots_.find(one.value);
    if (slot != slots_.end() && slot->second.live.num_uses == 0) slots_.erase(slot);
  }
}

/// Returns the memory of an argument if the result is a view of it, else a new one.
size_t Run::memory_of(const at::Tensor& result, const std::vector<Used>& used) {
  if (!result.has_storage()) return new_memory();
  for (const Used& one : used) {
    if (one.tensor.has_storage() && one.tensor.storage().is_alias_of(result.storage())) {
      return one.memory;
    }
  }
  return new_memory();
}

torch::jit::Stack Run::arguments_of(const Node& node, std::vector<at::Tensor>& written,
                                    std::vector<size_t>& written_memories) {
  const OperatorInfo& info = info_of(node);
  std::unordered_map<const Value*, std::pair<at::Tensor, size_t>> copies;
  return stack_of(node, [&](size_t argument, const Value& value) {
    if (std::ranges::find(info.written, argument) == info.written.end()) {
      return slots_.at(&value).tensor;
    }
    auto [copy, is_new] = copies.try_emplace(&value);
    if (is_new) copy->second.first = writable(value, copy->second.second);
    written.push_back(copy->second.first);
    written_memories.push_back(copy->second.second);
    return copy->second.first;
  });
}

Interpretation interpret(const Graph& graph, const std::vector<at::Tensor>& inputs,
                         const InterpretOptions& options) {
  // Kernels run as they were recorded: below autograd and autocast, in a mode in which they
  // (oneDNN's LSTM) keep the values that a backward pass needs.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::AutoGradMode keeps_workspaces(true);
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  Run run(graph, options);
  run.bind(inputs);
  for (const Node& node : graph.nodes()) {
    if (node.opcode() == Opcode::kCallFunction) run.run(node);
  }
  return run.results();
}

void propagate_types(Graph& graph, const std::vector<at::Tensor>& inputs) {
  const std::vector<Node*> placeholders = graph.find_nodes(Opcode::kPlaceholder);
  LEVIN_CHECK(inputs.size() == placeholders.size(), "graph.input", "got {} inputs, wanted {}",
              inputs.size(), placeholders.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    placeholders[i]->output().set_type(ValueType::of(inputs[i]));
  }
  interpret(graph, inputs,
            {.observe = [](const Node& node, const std::vector<at::Tensor>& results) {
              for (size_t i = 0; i < results.size(); ++i) {
                const ValueKind kind = node.output(i).type().kind;
                if (kind == ValueKind::kHost || kind == ValueKind::kRandom) continue;
                node.output(i).set_type(ValueType::of(results[i]));
              }
            }});
  graph.set_claimed_types(false);
}

}  // namespace levin::graph
