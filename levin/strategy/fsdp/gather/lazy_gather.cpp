#include "levin/strategy/fsdp/gather/lazy_gather.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ranges>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/tensors_in.h"
#include "levin/strategy/fsdp/write_watch.h"

namespace levin::fsdp {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

constexpr int64_t kLearns = 8;  // updates; modules of a GAN are not all in the first

const c10::FunctionSchema& schema_of_casts() {
  static const c10::FunctionSchema& schema =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", "").schema();
  return schema;
}

/// Autocast switches itself off in this thread while it casts the arguments of an operator. A cast
/// in the user's code runs with autocast on, or without any.
bool is_autocasting(at::DeviceType device) {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting() > 0 && !at::autocast::is_autocast_enabled(device);
}

/// The dtype that a call of aten::_to_copy casts to; none if it changes anything else.
std::optional<at::ScalarType> type_of_cast(const c10::IValue* arguments, const at::Tensor& from) {
  const auto& [dtype, layout, device, pinned, memory_format] =
      std::tie(arguments[1], arguments[2], arguments[3], arguments[4], arguments[6]);
  const bool changes_more =
      (!layout.isNone() && layout.toLayout() != from.layout()) ||
      (!device.isNone() && device.toDevice() != from.device()) ||
      (!pinned.isNone() && pinned.toBool()) ||
      (!memory_format.isNone() && memory_format.toMemoryFormat() != at::MemoryFormat::Preserve);
  if (dtype.isNone() || changes_more) return std::nullopt;
  return dtype.toScalarType();
}

/// The full parameter, or a transposition of it: in its place a cast would be laid out alike.
bool is_full(const at::Tensor& tensor, const shard::ShardedParameter& parameter) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.numel() == parameter.numel();
}

/// A tensor of no elements in the storage. cuDNN's recurrent layers look at the storage of a weight.
at::Tensor tensor_over(const c10::Storage& storage) {
  return at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                  c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                  caffe2::TypeMeta::Make<uint8_t>());
}

/// Returns the leaf to which a node adds gradients, or nullptr.
const at::Tensor* leaf_of(const Node* node) {
  if (node->num_outputs() > 0) return nullptr;
  const auto* accumulator = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
  return accumulator == nullptr ? nullptr : &accumulator->variable;
}

}  // namespace

LazyGather::LazyGather(const comm::ProcessGroup& group, int64_t gathered_bytes)
    : group_(group), cache_(group, gathered_bytes) {}

LazyGather::~LazyGather() = default;

void LazyGather::add(Unit& unit, const Resharding& resharding) {
  units_.push_back({&unit, resharding});
  const size_t number = units_.size() - 1;
  for (size_t i = 0; i < unit.parameters().size(); ++i) {
    unit.parameters()[i]->set_place({.gatherer = this, .unit = number, .number = i});
  }
  uses_.add_unit(unit.parameters().size());
  add_memories(number);
  gathers_ |= !unit.memory().is_always_here();
  learns_ = gathers_ && !unit.memory().mapped().defined() && num_learnt_ < kLearns;
}

/// Adds memories of the parameters in the dtypes in which a pass reads them. Parameters that are cast
/// get one in the unit's own dtype too, for other readers.
void LazyGather::add_memories(size_t unit) {
  Entry& entry = units_[unit];
  UnitMemory& memory = entry.unit->memory();
  const size_t count = memory.parameters().size();
  std::map<at::ScalarType, std::vector<size_t>> by_type;
  std::vector<size_t> cast;
  for (size_t i = 0; i < count; ++i) {
    const auto type = uses_.cast_to(unit, i);
    by_type[type.value_or(memory.type())].push_back(i);
    if (type) cast.push_back(i);
  }
  std::vector<UnitMemory*> memories;
  std::vector<const std::vector<size_t>*> parameters;
  const auto add = [&](const std::vector<size_t>& some, at::ScalarType type) {
    parameters.push_back(&some);
    if (some.size() == count && type == memory.type()) return memories.push_back(&memory);
    casts_.push_back(make_cast_memory(memory, some, type, entry.unit->shard_group()));
    memories.push_back(casts_.back().get());
  };
  for (const auto& [type, of_type] : by_type) add(of_type, type);
  const size_t num_needed = memories.size();
  if (!cast.empty()) add(cast, memory.type());
  const size_t first = cache_.add(memories, num_needed, entry.resharding);
  entry.numbers.assign(count, 0);
  entry.as_stored.assign(count, 0);
  for (size_t i = 0; i < memories.size(); ++i) {
    for (const size_t parameter : *parameters[i]) {
      if (i < num_needed) entry.numbers[parameter] = first + i;
      if (memories[i]->type() == memory.type()) entry.as_stored[parameter] = first + i;
    }
  }
}

const shard::ShardedParameter* LazyGather::parameter_of(const at::Tensor& tensor) const {
  const shard::ShardedParameter* parameter = shard::ShardedParameter::of_values(tensor);
  return parameter != nullptr && parameter->place().gatherer == this ? parameter : nullptr;
}

size_t LazyGather::number_of(const shard::ShardedParameter& parameter,
                             const at::Tensor& tensor) const {
  const Entry& entry = units_[parameter.place().unit];
  const bool is_as_stored = tensor.storage().unsafeGetStorageImpl() ==
                            parameter.full().tensor().storage().unsafeGetStorageImpl();
  return (is_as_stored ? entry.as_stored : entry.numbers)[parameter.place().number];
}

void LazyGather::begin(Pass pass) { cache_.begin(pass); }
void LazyGather::drop() { cache_.drop(); }
void LazyGather::end_evaluation() { cache_.end_evaluation(); }

void LazyGather::learn_uses() {
  if (!learns_) return;
  learns_ = ++num_learnt_ < kLearns;
  if (!uses_.agree(group_)) return;
  cache_.clear();
  casts_.clear();
  for (size_t unit = 0; unit < units_.size(); ++unit) add_memories(unit);
}

void LazyGather::plan_backward(std::span<Node* const> nodes) {
  if (gathers_) cache_.expect(backward_order(nodes));
}

/// Returns in which order a backward pass reads the values of parameters, as its graph says: the
/// cache's numbers, each once. nodes: in the order in which they run. A function reads a parameter if
/// it has a gradient to compute for something that it was combined with: a layer's input, not its bias.
std::vector<size_t> LazyGather::backward_order(std::span<Node* const> nodes) const {
  ska::flat_hash_map<const Node*, size_t> of_views;  // numbers by nodes that stand for a parameter
  const auto number_at = [&](const Edge& edge) -> std::optional<size_t> {
    const Node* node = edge.function.get();
    if (node == nullptr) return std::nullopt;
    if (const at::Tensor* leaf = leaf_of(node)) {
      const auto* parameter = shard::ShardedParameter::of(*leaf);
      if (parameter == nullptr || parameter->place().gatherer != this) return std::nullopt;
      return number_of(*parameter);
    }
    const auto number = of_views.find(node);
    return number == of_views.end() ? std::nullopt : std::optional(number->second);
  };
  // Casts, transpositions and the like of a parameter stand for it: from the leaves on.
  for (const Node* node : nodes | std::views::reverse) {
    if (node->num_outputs() != 1) continue;
    if (const auto number = number_at(node->next_edge(0))) of_views[node] = *number;
  }
  std::vector<size_t> order;
  for (const Node* node : nodes) {
    if (node->num_outputs() < 2) continue;
    std::vector<size_t> numbers;
    bool has_input = false;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      if (const auto number = number_at(edge)) {
        numbers.push_back(*number);
      } else {
        has_input = true;
      }
    }
    if (!has_input) continue;
    for (const size_t number : numbers) {
      if (std::ranges::find(order, number) == order.end()) order.push_back(number);
    }
  }
  return order;
}

void LazyGather::call(graph::OperatorCall& call) {
  const c10::FunctionSchema& schema = call.op().schema();
  const OperatorAliases::Aliases& aliases = aliases_.of(schema);
  // The barrier after an update has the full values among its arguments, and writes nothing.
  const bool writes = !aliases.written.empty() && schema.name() != "levin::barrier_";
  if (writes) check_writes(schema, aliases, call.stack());
  if (gathers_ && !aliases.gives_views_only) {
    if (&schema == &schema_of_casts() && answer_cast(call)) return;
    look(call.stack(), schema.arguments().size());
  }
  call.proceed();
}

/// Refuses a write to a parameter within a forward or backward pass: no other rank would learn of
/// it.
void LazyGather::check_writes(const c10::FunctionSchema& schema,
                              const OperatorAliases::Aliases& aliases,
                              const std::vector<c10::IValue>& stack) const {
  const size_t first = stack.size() - schema.arguments().size();
  for (const size_t argument : aliases.written) {
    graph::for_each_tensor(stack[first + argument], [&](const at::Tensor& tensor) {
      const auto* parameter = parameter_of(tensor);
      if (parameter != nullptr) WriteWatch::refuse(*parameter, schema.name());
    });
  }
}

/// Keeps the parameters that the other arguments read in place while the rest is gathered.
void LazyGather::look(const std::vector<c10::IValue>& stack, size_t count) {
  const auto each = [&](const auto& see) {
    for (size_t i = stack.size() - count; i < stack.size(); ++i) {
      if (stack[i].isStorage()) see(tensor_over(stack[i].toStorage()));
      graph::for_each_tensor(stack[i], see);
    }
  };
  bool misses = false;
  each([&](const at::Tensor& tensor) {
    const shard::ShardedParameter* parameter = parameter_of(tensor);
    if (parameter == nullptr) return;
    misses |= !cache_.is_here(number_of(*parameter, tensor));
    const auto& place = parameter->place();
    if (learns_ && tensor.scalar_type() == units_[place.unit].unit->type()) {
      uses_.note_used_as_stored(place.unit, place.number);
    }
  });
  if (!misses) return;
  required_.clear();
  each([&](const at::Tensor& tensor) {
    if (const auto* parameter = parameter_of(tensor)) require(number_of(*parameter, tensor));
  });
  cache_.gather(required_);
}

void LazyGather::require(size_t number) {
  if (std::ranges::find(required_, number) == required_.end()) required_.push_back(number);
}

bool LazyGather::answer_cast(graph::OperatorCall& call) {
  std::vector<c10::IValue>& stack = call.stack();
  const size_t count = schema_of_casts().arguments().size();
  const c10::IValue* arguments = &stack[stack.size() - count];
  const at::Tensor& from = arguments[0].toTensor();
  const shard::ShardedParameter* parameter = parameter_of(from);
  if (parameter == nullptr) return false;
  const auto& place = parameter->place();
  if (from.scalar_type() != units_[place.unit].unit->type()) return false;
  const auto type = type_of_cast(arguments, from);
  if (!type || !is_full(from, *parameter) || !is_autocasting(from.device().type())) return false;
  if (learns_) uses_.note_cast(place.unit, place.number, *type);
  if (uses_.cast_to(place.unit, place.number) != type) {
    required_.assign(1, number_of(*parameter, from));
    cache_.gather(required_);
    call.proceed();
    return true;
  }
  required_.assign(1, number_of(*parameter));
  cache_.gather(required_);
  at::Tensor result = parameter->full(*type).alias(from.sizes(), from.strides());
  stack.resize(stack.size() - count);
  stack.emplace_back(std::move(result));
  return true;
}

}  // namespace levin::fsdp
