// Memory and its aliases: the value that a tensor has now, and what a write through it changes.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/graph/fake/fake_tensors.h"
#include "levin/graph/record/recorder_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

/// The permutation that undoes one.
std::vector<int64_t> inverse_of(const std::vector<int64_t>& dims) {
  const auto count = static_cast<int64_t>(dims.size());
  std::vector<int64_t> inverse(dims.size());
  for (int64_t i = 0; i < count; ++i) inverse[(dims[i] + count) % count] = i;
  return inverse;
}

std::vector<int64_t> as_vector(const at::DimVector& numbers) {
  return {numbers.begin(), numbers.end()};
}

bool is_inside(const Geometry& part, const Geometry& whole) {
  const auto [begin, end] = part.extent();
  const auto [from, to] = whole.extent();
  return from <= begin && end <= to && whole.is_dense() && whole.dtype == part.dtype &&
         whole.is_conj == part.is_conj && whole.is_neg == part.is_neg;
}

/// Returns all of the memory between two places as one row of elements.
at::Tensor row_of(const at::Tensor& tensor, int64_t begin, int64_t end) {
  const at::NoGradGuard no_grad;
  const auto item = static_cast<int64_t>(tensor.itemsize());
  return at::empty({0}, tensor.options())
      .set_(tensor.storage(), begin / item, {(end - begin) / item}, {1});
}

}  // namespace

const OperatorInfo& Recorder::Impl::op(const char* name, const char* overload) {
  return info_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

Value& Recorder::Impl::append(const OperatorInfo& info, std::vector<Argument> arguments,
                              const Geometry& result) {
  Node& node = graph.insert_call(info, arguments, 1);
  node.output().set_type({.dtype = result.dtype,
                          .device = result.storage->device(),
                          .sizes = result.sizes,
                          .strides = result.strides});
  if (is_unexpected(node)) frames.emplace_back(&node, torch::unwind::unwind());
  return node.output();
}

void Recorder::Impl::check_strided(const Geometry& whole, const Geometry& part) {
  LEVIN_CHECK(
      whole.dtype == part.dtype && whole.is_conj == part.is_conj && whole.is_neg == part.is_neg,
      "graph.record.alias",
      "got a tensor of {} that is aliased as {} through an untracked view; make a copy",
      c10::toString(whole.dtype), c10::toString(part.dtype));
}

ViewLink Recorder::Impl::strided_link(const Geometry& whole, const Geometry& part) {
  check_strided(whole, part);
  return {&op("aten::as_strided"),
          {as_vector(part.sizes), as_vector(part.strides), part.offset - whole.offset}};
}

/// A result of a view operator as one of its first argument alone.
ViewLink Recorder::Impl::link_of(const Alias& alias) {
  if (alias.origin.node == nullptr) return strided_link(alias.parent->geometry, alias.geometry);
  const Node& node = *alias.origin.node;
  const size_t result = alias.origin.result;
  const OperatorInfo& info = info_of(node);
  if (info.view == ViewKind::kSplit) {
    const int64_t dim =
        at::maybe_wrap_dim(constant_of(node.arguments()[2])->toInt(),
                           static_cast<int64_t>(alias.parent->geometry.sizes.size()));
    int64_t start = 0;
    for (size_t i = 0; i < result; ++i) start += node.output(i).type().sizes[dim];
    const int64_t end = start + node.output(result).type().sizes[dim];
    return {&op("aten::slice", "Tensor"), {dim, start, end, 1}};
  }
  if (info.view == ViewKind::kUnbind) {
    return {&op("aten::select", "int"), {node.arguments()[1], static_cast<int64_t>(result)}};
  }
  return {&info, {node.arguments().begin() + 1, node.arguments().end()}};
}

/// The value that the memory holds now, seen through this alias.
Value* Recorder::Impl::current(Alias& alias) {
  if (alias.is_newest()) return alias.value;
  ViewLink link = link_of(alias);
  link.constants.insert(link.constants.begin(), *current(*alias.parent));
  alias.set(append(*link.op, std::move(link.constants), alias.geometry));
  return alias.value;
}

/// The whole, after the part that the alias looks at has become the value.
Value* Recorder::Impl::scattered(Alias& alias, Value& value) {
  const Geometry& whole = alias.parent->geometry;
  const auto [link_op, constants] = link_of(alias);
  const auto of_part = [&](const OperatorInfo& inverse, std::vector<Argument> more) {
    more.insert(more.begin(), Argument(value));
    return &append(inverse, std::move(more), whole);
  };
  const auto of_both = [&](const OperatorInfo& scatter, std::vector<Argument> more) {
    more.insert(more.begin(), {Argument(*current(*alias.parent)), Argument(value)});
    return &append(scatter, std::move(more), whole);
  };
  switch (link_op->view) {
    case ViewKind::kSlice:
      return of_both(op("aten::slice_scatter"), constants);
    case ViewKind::kSelect:
      return of_both(op("aten::select_scatter"), constants);
    case ViewKind::kDiagonal:
      return of_both(op("aten::diagonal_scatter"), constants);
    case ViewKind::kTranspose:
    case ViewKind::kInvolution:
      return of_part(*link_op, constants);
    case ViewKind::kPermute:
      return of_part(*link_op, {inverse_of(constant_of(constants[0])->toIntVector())});
    case ViewKind::kReshape:
      return of_part(op("aten::view"), {as_vector(whole.sizes)});
    case ViewKind::kAsReal:
      return of_part(op("aten::view_as_complex"), {});
    case ViewKind::kAsComplex:
      return of_part(op("aten::view_as_real"), {});
    case ViewKind::kDtype:
      return of_part(op("aten::view", "dtype"), {static_cast<int64_t>(whole.dtype)});
    default:
      return of_both(op("aten::as_strided_scatter"), strided_link(whole, alias.geometry).constants);
  }
}

void Recorder::Impl::write(Alias& alias, Value& value) {
  Region& region = *alias.region;
  c10::SmallVector<std::pair<Alias*, Value*>, 4> changed = {{&alias, &value}};
  for (Alias* part = &alias; part->parent != nullptr; part = part->parent) {
    changed.emplace_back(part->parent, scattered(*part, *changed.back().second));
  }
  ++region.version;
  region.is_unwritten = false;
  for (const auto& [looking, newest] : changed) looking->set(*newest);
}

Alias& Recorder::Impl::alias_of(const at::Tensor& tensor) {
  Alias* alias = aliases.find(tensor);
  return alias != nullptr ? *alias : outside(tensor);
}

/// One that no recorded operator gave: it was there before, or is such a one seen another way.
Alias& Recorder::Impl::outside(const at::Tensor& tensor) {
  const Geometry geometry = Geometry::of(tensor);
  const std::vector<Region*> regions = aliases.overlapping(geometry);
  if (regions.size() == 1 && is_inside(geometry, regions[0]->base->geometry)) {
    Alias& base = *regions[0]->base;
    return aliases.add_view(tensor, base, /*origin=*/{}, nullptr);
  }
  if (!regions.empty() && tensor.numel() != 0) return widened(tensor, regions);
  LEVIN_CHECK(options.allow_stale || tensor.is_leaf(), "graph.trace.stale",
              "got a tensor {} that {} computed before the trace, and every call of the graph "
              "would use it; compute it in the function, or pass it as an input or detached",
              c10::str(tensor.sizes()), tensor.grad_fn()->name());
  const auto named = state_names.find(geometry);
  LEVIN_CHECK(named != state_names.end() || options.allow_captured, "graph.trace.captured",
              "got a tensor {} of {} that is neither an input nor named as state, and every call "
              "of the graph would use it; make it an input or name it in TraceOptions::state",
              c10::str(tensor.sizes()), c10::toString(tensor.scalar_type()));
  check_contents_before(tensor, geometry);
  met_other_state = met_other_state || !is_expected_state(tensor);
  Value& before = named == state_names.end() ? add_state(tensor, "")
                                             : add_state(named->second.tensor, named->second.name);
  Alias& alias = aliases.add_base(tensor, before);
  alias.region->input = alias.value;
  note_contents(*alias.region);
  return alias;
}

Value& Recorder::Impl::add_state(const at::Tensor& tensor, std::string name) {
  while (name.empty() || used_names.contains(name)) {
    name = fmt::format("{}_{}", tensor.requires_grad() ? "parameter" : "state", num_unnamed++);
  }
  used_names.insert(name);
  Node& node = graph.insert(Opcode::kGetAttr, {}, 1);
  node.name_ = std::move(name);
  node.tensor_ = tensor;
  states.push_back(&node);
  node.output().set_type(ValueType::of(tensor));
  return node.output();
}

/// Several tensors from outside that lie in one memory become views of all of it.
Alias& Recorder::Impl::widened(const at::Tensor& tensor, const std::vector<Region*>& regions) {
  ++num_widened;
  const Geometry geometry = Geometry::of(tensor);
  auto [begin, end] = geometry.extent();
  for (const Region* region : regions) {
    const bool is_state =
        region->input != nullptr && !region->is_argument && region->under_way.empty();
    LEVIN_CHECK(
        is_state && region->base->geometry.dtype == geometry.dtype, "graph.record.alias",
        "got a tensor {} that shares memory with {}, which the graph does not track; make a copy",
        c10::str(tensor.sizes()),
        is_state ? "a tensor of another dtype" : "an input or a result beyond its bounds");
    const auto extent = region->base->geometry.extent();
    begin = std::min(begin, extent.first);
    end = std::max(end, extent.second);
  }
  const bool is_whole = geometry.is_dense() && geometry.extent() == std::pair(begin, end);
  const at::Tensor whole = is_whole ? tensor : row_of(tensor, begin, end);
  Value& before = [&]() -> Value& {
    const InsertionPoint at_start = graph.inserting_before(graph.nodes().front());
    const auto named = state_names.find(Geometry::of(whole));
    return add_state(whole, named == state_names.end() ? "" : named->second.name);
  }();
  Alias& into = aliases.add_base(whole, before);
  into.region->input = &before;
  note_contents(*into.region);
  for (Region* region : regions) absorb(*region, into);
  return is_whole ? into : aliases.add_view(tensor, into, /*origin=*/{}, nullptr);
}

void Recorder::Impl::absorb(Region& region, Alias& into) {
  Alias& base = *region.base;
  const ViewLink link = strided_link(into.geometry, base.geometry);
  Node& input = region.input->node();
  {
    const InsertionPoint in_place = graph.inserting_before(input);
    std::vector<Argument> arguments = link.constants;
    arguments.insert(arguments.begin(), Argument(*into.region->input));
    Value& view = append(*link.op, std::move(arguments), base.geometry);
    region.input->replace_all_uses_with(view);
    if (base.value == region.input) base.value = &view;
  }
  if (region.version > 1) {
    std::vector<Argument> arguments = link.constants;
    arguments.insert(arguments.begin(), {Argument(*into.value), Argument(*base.value)});
    ++into.region->version;
    into.set(append(op("aten::as_strided_scatter"), std::move(arguments), into.geometry));
  }
  aliases.merge(region, into);
  std::erase(states, &input);
  graph.erase_node(input);
}

/// Memory that no operator has written, and that is read: the host did (as torch::tensor does), so
/// that its contents are a constant.
void Recorder::Impl::freeze(Alias& alias, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  Alias& base = *alias.region->base;
  const Geometry& whole = base.geometry;
  const at::Tensor view = tensor.as_strided(whole.sizes, whole.strides, whole.offset).detach();
  const at::Tensor contents = has_no_memory(tensor) ? view : view.clone();
  const std::string name = fmt::format("_tensor_constant{}", num_constants++);
  met_other_state = met_other_state || !is_expected_constant(name, contents);
  Value& constant = add_state(contents, name);
  ++base.region->version;
  base.region->is_unwritten = false;
  base.set(constant);
}

}  // namespace levin::graph
