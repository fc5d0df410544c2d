#include "levin/strategy/fsdp/unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "levin/base/check.h"
#include "levin/strategy/fsdp/passing_memory.h"

namespace levin::fsdp {
namespace {

using NodePointer = decltype(torch::autograd::Edge::function);

// LibTorch up to 2.12 counts nodes by std::shared_ptr. Templates, as each LibTorch has one of the two kinds alone.
template <class Node>
[[maybe_unused]] std::weak_ptr<Node> weak(const std::shared_ptr<Node>& node) {
  return node;
}
template <class Node>
[[maybe_unused]] c10::weak_intrusive_ptr<Node> weak(const c10::intrusive_ptr<Node>& node) {
  return c10::weak_intrusive_ptr<Node>(node);
}

/// Rows lie one behind the other in its memory.
bool has_whole_rows(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() &&
         (tensor.size(0) == 1 || tensor.stride(0) * tensor.size(0) == tensor.numel());
}

std::vector<int64_t> strides_of(const at::Tensor& tensor) {
  if (has_whole_rows(tensor)) return tensor.strides().vec();
  return at::empty(tensor.sizes(), at::TensorOptions(at::kMeta)).strides().vec();
}

/// The storage is the parameter's alone: views of it that the user has go on showing its values.
bool may_keep_storage(const at::Tensor& parameter, at::Device device) {
  return parameter.device() == device && parameter.storage_offset() == 0 &&
         parameter.storage().nbytes() == parameter.nbytes() && has_whole_rows(parameter);
}

void set_values(const at::Tensor& parameter, const at::Tensor& values) {
  parameter.unsafeGetTensorImpl()->shallow_copy_from(values.getIntrusivePtr());
}

void show_whole(Leaf& leaf) {
  set_values(leaf.parameter, leaf.whole);
  leaf.divided->set_part(&leaf.rows);
}

void show_rows(Leaf& leaf) {
  set_values(leaf.parameter, leaf.rows);
  leaf.divided->set_part(nullptr);
  torch::autograd::impl::set_grad_accumulator(leaf.parameter, weak(NodePointer()));
}

bool holds(const at::Tensor& parameter, const at::Tensor& values) {
  return parameter.storage().unsafeGetStorageImpl() == values.storage().unsafeGetStorageImpl() &&
         parameter.storage_offset() == values.storage_offset() &&
         parameter.sizes() == values.sizes() && parameter.scalar_type() == values.scalar_type();
}

/// The text of an exception that LibTorch throws.
std::string unseen_text(const std::string& parameter, const std::string& unit) {
  return Error("strategy.fsdp.unseen",
               fmt::format(
                   "parameter {} of unit {} is read while it is not gathered: from another thread "
                   "than the forward pass, after fit, or through a view outside of the forward "
                   "pass; read it within forward, or use levin::full({}) on all ranks",
                   parameter, unit, parameter))
      .what();
}

void check_apart(const std::vector<NamedTensor>& parameters, const std::string& unit) {
  std::vector<std::pair<std::pair<const void*, const void*>, const std::string*>> places;
  for (const NamedTensor& parameter : parameters) {
    if (parameter.tensor.is_meta()) return;
    const auto* begin = static_cast<const std::byte*>(parameter.tensor.const_data_ptr());
    places.push_back({{begin, begin + parameter.tensor.nbytes()}, &parameter.name});
  }
  std::ranges::sort(places);
  for (size_t i = 1; i < places.size(); ++i) {
    LEVIN_CHECK(places[i - 1].first.second <= places[i].first.first, "strategy.fsdp.shared_memory",
                "{} and {} of unit {} are two parameters that share memory, which cannot be "
                "sharded; register one tensor under both names",
                *places[i - 1].second, *places[i].second, unit);
  }
}

}  // namespace

int64_t alignment_of(at::ScalarType type) {
  constexpr int64_t kBytes = 64;  // size of a vector register and of a cache line
  return std::max<int64_t>(kBytes / static_cast<int64_t>(c10::elementSize(type)), 1);
}

int64_t Leaf::first_row(int64_t rank) const {
  return std::accumulate(rows_of_ranks.begin(), rows_of_ranks.begin() + rank, int64_t{0});
}

Unit::Unit(std::string name, const std::vector<NamedTensor>& parameters,
           const comm::DeviceMesh& mesh, const UnitOptions& options)
    : name_(std::move(name)), mesh_(mesh), options_(options) {
  check_apart(parameters, name_);
  std::vector<std::vector<int64_t>> sizes;
  for (const NamedTensor& parameter : parameters) sizes.push_back(parameter.tensor.sizes().vec());
  const std::vector<Extent> extents =
      extents_of(sizes, alignment_of(parameters.front().tensor.scalar_type()));
  runs_ = cut_unit(extents, mesh_.size(), options_.cut);
  numel_ = extents.back().end();
  for (size_t i = 0; i < parameters.size(); ++i) {
    leaves_.push_back({.name = parameters[i].name,
                       .parameter = parameters[i].tensor,
                       .sizes = std::move(sizes[i]),
                       .strides = strides_of(parameters[i].tensor),
                       .was_on_meta = parameters[i].tensor.is_meta(),
                       .extent = extents[i],
                       .rows_of_ranks = rows_in_runs(extents[i], runs_)});
  }
}

void Unit::place(at::Device device) {
  const at::NoGradGuard no_grad;
  const int64_t rank = mesh_.rank();
  const int64_t begin = std::accumulate(runs_.begin(), runs_.begin() + rank, int64_t{0});
  const int64_t length = runs_[static_cast<size_t>(rank)];
  const at::TensorOptions kind = at::TensorOptions(type()).device(device);
  take_memory(kind);
  own_.copy_(values_of_first_rank(kind).narrow(0, begin, length));
  for (Leaf& leaf : leaves_) {
    const int64_t first = leaf.extent.begin + leaf.first_row(rank) * leaf.extent.row_numel;
    std::vector<int64_t> sizes = leaf.sizes;
    sizes.front() = leaf.rows_of_ranks[static_cast<size_t>(rank)];
    leaf.rows = sizes.front() == 0
                    ? at::empty(sizes, kind)
                    : own_.as_strided(sizes, leaf.strides, own_.storage_offset() + first - begin);
    if (leaf.was_on_meta) leaf.rows.copy_(leaf.parameter);
    const bool keeps = !leaf.was_on_meta && may_keep_storage(leaf.parameter, device);
    leaf.unseen = unseen_text(leaf.name, name_);
    leaf.whole = tensor_on(keeps ? leaf.parameter.storage() : storage_without_memory(device),
                           leaf.sizes, leaf.strides, kind);
    leaf.divided.emplace(
        leaf.parameter, mesh_,
        shard::Layout(leaf.sizes, mesh_.shape(), {shard::Shard{0, leaf.rows_of_ranks}}));
    set_values(leaf.parameter, leaf.rows);
    torch::autograd::impl::materialize_autograd_meta(leaf.parameter);  // enter and leave look at it
  }
  detach();
  if (options_.shares_memory) attach(mapped_);
  note_values();
}

void Unit::take_memory(const at::TensorOptions& kind) {
  if (options_.shares_memory) {
    comm::SharedTensor shared = mesh_.flat().share(runs_, type());
    own_ = std::move(shared.own);
    mapped_ = std::move(shared.whole);
  } else if (options_.hosts != nullptr) {
    Hosts& hosts = *options_.hosts;
    std::vector<int64_t> of_places;
    for (auto run = runs_.begin(); run != runs_.end(); run += hosts.num_hosts()) {
      of_places.push_back(std::accumulate(run, run + hosts.num_hosts(), int64_t{0}));
    }
    comm::SharedTensor shared = hosts.local.share(of_places, type());
    part_of_place_ = std::move(shared.own);
    mapped_ = std::move(shared.whole);
    const std::vector<int64_t> runs = runs_of_place();
    const int64_t begin =
        std::accumulate(runs.begin(), runs.begin() + hosts.across.rank(), int64_t{0});
    own_ = part_of_place_.narrow(0, begin, runs[static_cast<size_t>(hosts.across.rank())]);
  } else {
    own_ = at::zeros({runs_[static_cast<size_t>(mesh_.rank())]}, kind);
  }
}

std::vector<int64_t> Unit::runs_of_place() const {
  const int64_t hosts = options_.hosts->num_hosts();
  const auto first = runs_.begin() + options_.hosts->local.rank() * hosts;
  return {first, first + hosts};
}

at::Tensor Unit::values_of_first_rank(const at::TensorOptions& kind) const {
  at::Tensor all = at::zeros({numel_}, kind);
  bool has_values = false;
  for (const Leaf& leaf : leaves_) {
    if (leaf.was_on_meta) continue;
    all.as_strided(leaf.sizes, leaf.strides, leaf.extent.begin).copy_(leaf.parameter);
    has_values = true;
  }
  if (has_values) mesh_.flat().broadcast(all, 0);
  return all;
}

void Unit::attach(const at::Tensor& memory) {
  for (const Leaf& leaf : leaves_) lay_into(leaf.whole, memory, leaf.extent.begin);
}

void Unit::detach() {
  for (const Leaf& leaf : leaves_) take_away(leaf.whole, leaf.unseen);
}

// A graph of the rows would give a gradient of their sizes to a parameter that is full in backward;
// and for one row LibTorch would silently sum the full gradient.
void Unit::check_outside(const Leaf& leaf) const {
  LEVIN_CHECK(
      torch::autograd::impl::try_get_grad_accumulator(leaf.parameter) == nullptr,
      "strategy.fsdp.outside",
      "parameter {} of unit {} was used outside of a forward pass, where a rank holds only its "
      "shard, and that graph is still alive; use the parameter in a method of the module, called "
      "through the prepared model's ->, or use levin::full({}) for its values",
      leaf.name, name_, leaf.name);
}

std::string Unit::graph_of_rows() const {
  try {
    for (const Leaf& leaf : leaves_) check_outside(leaf);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Module::to, a load or set_data has put another tensor in the place of the rows.
void Unit::adopt(Leaf& leaf) {
  LEVIN_CHECK(leaf.parameter.sizes() == leaf.rows.sizes() &&
                  leaf.parameter.scalar_type() == leaf.rows.scalar_type() &&
                  leaf.parameter.device() == leaf.rows.device(),
              "strategy.fsdp.replaced",
              "parameter {} of unit {} was replaced by a tensor of {} {} on {}, wanted this rank's "
              "rows: {} {} on {}; set the parameter within levin::WholeScope, or before prepare",
              leaf.name, name_, c10::toString(leaf.parameter.scalar_type()),
              c10::str(leaf.parameter.sizes()), leaf.parameter.device().str(),
              c10::toString(leaf.rows.scalar_type()), c10::str(leaf.rows.sizes()),
              leaf.rows.device().str());
  const at::NoGradGuard no_grad;
  leaf.rows.copy_(leaf.parameter.detach());
  leaf.version = -1;
}

// A tensor set within a pass would be lost at its end, and other ranks may still read the old values.
void Unit::check_not_replaced(Leaf& leaf) const {
  LEVIN_CHECK(!std::exchange(leaf.is_replaced, false), "strategy.fsdp.replaced",
              "parameter {} of unit {} was set to another tensor (set_data, Module::to or a load) "
              "within a forward or backward pass, when all ranks read its memory; set it between "
              "steps, within levin::WholeScope",
              leaf.name, name_);
}

void Unit::enter() {
  for (Leaf& leaf : leaves_) {
    check_not_replaced(leaf);
    check_outside(leaf);
    if (!holds(leaf.parameter, leaf.rows)) adopt(leaf);
  }
  for (Leaf& leaf : leaves_) {
    show_whole(leaf);
    if (!leaf.parameter.requires_grad()) continue;
    if (leaf.accumulator == nullptr) {
      leaf.accumulator = torch::autograd::impl::grad_accumulator(leaf.parameter);
    } else {
      torch::autograd::impl::set_grad_accumulator(leaf.parameter, weak(leaf.accumulator));
    }
  }
}

void Unit::leave() {
  for (Leaf& leaf : leaves_) {
    leaf.is_replaced |= !holds(leaf.parameter, leaf.whole);
    if (leaf.accumulator == nullptr) {  // it was unfrozen meanwhile
      leaf.accumulator = torch::autograd::impl::try_get_grad_accumulator(leaf.parameter);
    }
    show_rows(leaf);
  }
}

void Unit::rest() {
  for (Leaf& leaf : leaves_) {
    if (!holds(leaf.parameter, leaf.rows)) adopt(leaf);
    show_whole(leaf);
  }
}

void Unit::wake() {
  const at::NoGradGuard no_grad;
  for (Leaf& leaf : leaves_) {
    const at::Tensor values = leaf.parameter.variable_data();
    const bool is_replaced = is_replaced_at_rest(leaf);
    show_rows(leaf);
    if (!is_replaced) continue;
    if (values.sizes() != leaf.sizes) {
      set_values(leaf.parameter, values);
      adopt(leaf);
    } else {
      leaf.parameter.copy_(shard::own_part(leaf.parameter, values));
    }
  }
}

bool Unit::is_replaced_at_rest(const Leaf& leaf) {
  return leaf.divided->holds_full_tensor() && !holds(leaf.parameter, leaf.whole);
}

bool Unit::is_written() const {
  return std::ranges::any_of(leaves_, [](const Leaf& leaf) {
    return static_cast<int64_t>(leaf.parameter._version()) != leaf.version;
  });
}

void Unit::note_values() {
  for (Leaf& leaf : leaves_) leaf.version = static_cast<int64_t>(leaf.parameter._version());
}

}  // namespace levin::fsdp
