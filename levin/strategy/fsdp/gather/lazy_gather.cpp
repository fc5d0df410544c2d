#include "levin/strategy/fsdp/gather/lazy_gather.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ranges>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/tensors_in.h"
#include "levin/strategy/fsdp/passing_memory.h"

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

/// The whole of a leaf, or a transposition of it: in its place a cast would be laid out alike.
bool is_whole(const at::Tensor& tensor, const Leaf& leaf) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.numel() == leaf.extent.num_rows * leaf.extent.row_numel;
}

/// Refuses a write to a parameter within a forward or backward pass: no other rank would learn of
/// it.
void check_write(const LeafPlaces& places, const c10::FunctionSchema& schema,
                 const at::Tensor& tensor) {
  const LeafPlace* place = places.find(tensor);
  if (place == nullptr) return;
  LEVIN_FAIL("strategy.fsdp.write",
             "{} writes to {} of unit {} within a forward or backward pass, when all ranks read "
             "that memory; write to parameters between steps, or within levin::WholeScope",
             schema.name(), place->leaf().name, place->unit->name());
}

void check_writes(const LeafPlaces& places, const c10::FunctionSchema& schema,
                  const OperatorAliases::Aliases& aliases, const std::vector<c10::IValue>& stack) {
  const size_t first = stack.size() - schema.arguments().size();
  for (const size_t argument : aliases.written) {
    graph::for_each_tensor(stack[first + argument],
                           [&](const at::Tensor& tensor) { check_write(places, schema, tensor); });
  }
}

/// By what a parameter's gradients go to: a number of what its values are in.
using Numbers = ska::flat_hash_map<const Node*, size_t>;

/// In which order a backward pass reads the values of parameters, as its graph says: each number once.
/// nodes: in the order in which they run. A function reads a parameter if it has a gradient to compute
/// for something that it was combined with: a layer's input, not its bias.
std::vector<size_t> backward_order(std::span<Node* const> nodes, Numbers numbers) {
  // Casts, transpositions and the like of a parameter, which stand for it: from the leaves on.
  for (const Node* node : nodes | std::views::reverse) {
    if (node->num_outputs() != 1) continue;
    const auto number = numbers.find(node->next_edge(0).function.get());
    if (number == numbers.end()) continue;
    const size_t same = number->second;
    numbers[node] = same;
  }
  std::vector<size_t> order;
  for (const Node* node : nodes) {
    if (node->num_outputs() < 2) continue;
    const bool has_input = std::ranges::any_of(node->next_edges(), [&](const Edge& edge) {
      return edge.is_valid() && numbers.count(edge.function.get()) == 0;
    });
    if (!has_input) continue;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      const auto number = numbers.find(edge.function.get());
      if (number == numbers.end() || std::ranges::find(order, number->second) != order.end()) {
        continue;
      }
      order.push_back(number->second);
    }
  }
  return order;
}

}  // namespace

LazyGather::LazyGather(const comm::ProcessGroup& group, Hosts* hosts,
                       const FirstTouchOptions& options)
    : group_(group), cache_(group, hosts, options.gathered_bytes) {}

LazyGather::~LazyGather() = default;

void LazyGather::add(Unit& unit, bool stays) {
  units_.push_back({&unit, stays});
  uses_.add_unit(unit.leaves().size());
  images_.emplace_back();
  add_images(units_.size() - 1);
  gathers_ |= !unit.is_always_here();
  learns_ = gathers_ && !unit.mapped().defined() && num_learnt_ < kLearns;
}

/// Adds images of the leaves in the types in which a pass reads them. Leaves that are cast also get
/// an image in the unit's own type, for other readers.
void LazyGather::add_images(size_t number) {
  Unit& unit = *units_[number].unit;
  std::map<at::ScalarType, std::vector<size_t>> leaves;
  std::vector<size_t> cast;
  for (size_t leaf = 0; leaf < unit.leaves().size(); ++leaf) {
    const auto type = uses_.cast_to(number, leaf);
    leaves[type.value_or(unit.type())].push_back(leaf);
    if (type) cast.push_back(leaf);
  }
  std::vector<std::unique_ptr<GatheredUnit>> images;
  for (const auto& [type, of_type] : leaves) {
    images.push_back(std::make_unique<GatheredUnit>(unit, of_type, type));
  }
  const size_t num_needed = images.size();
  if (!cast.empty()) images.push_back(std::make_unique<GatheredUnit>(unit, cast, unit.type()));
  std::vector<const GatheredUnit*> made;
  for (const auto& image : images) made.push_back(image.get());
  const size_t first = cache_.add(std::move(images), num_needed, units_[number].stays);
  images_[number].resize(unit.leaves().size());
  for (size_t i = 0; i < made.size(); ++i) {
    for (size_t place = 0; place < made[i]->leaves().size(); ++place) {
      const size_t leaf = made[i]->leaves()[place];
      places_.set(made[i]->whole(place), {&unit, number, leaf, first + i});
      if (i < num_needed) images_[number][leaf] = first + i;
    }
  }
}

void LazyGather::begin(Pass pass) { cache_.begin(pass); }
void LazyGather::drop() { cache_.drop(); }
void LazyGather::end_evaluation() { cache_.end_evaluation(); }

void LazyGather::learn_uses() {
  if (!learns_) return;
  learns_ = ++num_learnt_ < kLearns;
  if (!uses_.agree(group_)) return;
  cache_.clear();
  places_.clear();
  for (size_t number = 0; number < units_.size(); ++number) add_images(number);
}

void LazyGather::plan_backward(std::span<Node* const> nodes) {
  if (!gathers_) return;
  Numbers numbers;
  for (size_t number = 0; number < units_.size(); ++number) {
    const auto& leaves = units_[number].unit->leaves();
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      const Node* accumulator = leaves[leaf].accumulator.get();
      if (accumulator != nullptr) numbers[accumulator] = images_[number][leaf];
    }
  }
  cache_.expect(backward_order(nodes, std::move(numbers)));
}

void LazyGather::call(graph::OperatorCall& call) {
  const c10::FunctionSchema& schema = call.op().schema();
  const OperatorAliases::Aliases& aliases = aliases_.of(schema);
  if (!aliases.written.empty()) check_writes(places_, schema, aliases, call.stack());
  if (gathers_ && !aliases.gives_views_only) {
    if (&schema == &schema_of_casts() && answer_cast(call)) return;
    look(call.stack(), schema.arguments().size());
  }
  call.proceed();
}

/// Keeps the parameters that the other arguments read in place while the rest is gathered.
void LazyGather::look(const std::vector<c10::IValue>& stack, size_t count) {
  const auto each = [&](const auto& see) {
    for (size_t i = stack.size() - count; i < stack.size(); ++i) {
      graph::for_each_tensor(stack[i], see);
    }
  };
  bool misses = false;
  each([&](const at::Tensor& tensor) {
    const LeafPlace* place = places_.find(tensor);
    if (place == nullptr) return;
    misses |= !cache_.is_here(place->image);
    if (learns_ && tensor.scalar_type() == place->unit->type()) {
      uses_.note_used_as_stored(place->unit_number, place->leaf_number);
    }
  });
  if (!misses) return;
  required_.clear();
  each([&](const at::Tensor& tensor) {
    if (const LeafPlace* place = places_.find(tensor)) require(place->image);
  });
  cache_.gather(required_);
}

void LazyGather::require(size_t image) {
  if (std::ranges::find(required_, image) == required_.end()) required_.push_back(image);
}

bool LazyGather::answer_cast(graph::OperatorCall& call) {
  std::vector<c10::IValue>& stack = call.stack();
  const size_t count = schema_of_casts().arguments().size();
  const c10::IValue* arguments = &stack[stack.size() - count];
  const at::Tensor& from = arguments[0].toTensor();
  const LeafPlace* place = places_.find(from);
  if (place == nullptr || from.scalar_type() != place->unit->type()) return false;
  const Leaf& leaf = place->leaf();
  const auto type = type_of_cast(arguments, from);
  if (!type || !is_whole(from, leaf) || !is_autocasting(from.device().type())) return false;
  if (learns_) uses_.note_cast(place->unit_number, place->leaf_number, *type);
  if (uses_.cast_to(place->unit_number, place->leaf_number) != type) {
    required_.assign(1, place->image);
    cache_.gather(required_);
    call.proceed();
    return true;
  }
  required_.assign(1, images_[place->unit_number][place->leaf_number]);
  cache_.gather(required_);
  const at::Tensor& whole = cache_.whole(required_.front(), place->leaf_number);
  at::Tensor result = tensor_on(whole.storage(), from.sizes(), from.strides(), whole.options());
  stack.resize(stack.size() - count);
  stack.emplace_back(std::move(result));
  return true;
}

}  // namespace levin::fsdp
