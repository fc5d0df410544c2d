#include "levin/shard/sharded_parameter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "levin/base/check.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::shard {
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

/// The sharded parameters of this process.
struct Registry {
  std::mutex mutex;
  ska::flat_hash_map<const c10::TensorImpl*, ShardedParameter*> by_leaf;
  /// By the storages of full values.
  ska::flat_hash_map<const c10::StorageImpl*, ShardedParameter*> by_values;

  static Registry& instance() {
    static Registry& registry =
        *new Registry;  // leaves of static objects may outlive any other static
    return registry;
  }

  ShardedParameter* find(const at::Tensor& leaf) const {
    const auto place = by_leaf.find(leaf.unsafeGetTensorImpl());
    return place == by_leaf.end() ? nullptr : place->second;
  }
  void add_values(const FullValues& values, ShardedParameter* parameter) {
    by_values[values.tensor().storage().unsafeGetStorageImpl()] = parameter;
  }
  void remove_values(const FullValues& values) {
    if (values.is_defined()) by_values.erase(values.tensor().storage().unsafeGetStorageImpl());
  }
};

/// Returns what `use` returns for the leaf's parameter, or a default value if it is not sharded.
template <class Use>
auto of_registered(const at::Tensor& leaf, Use use)
    -> decltype(use(std::declval<const ShardedParameter&>())) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  const ShardedParameter* parameter = registry.find(leaf);
  if (parameter == nullptr) return {};
  return use(*parameter);
}

/// The part that a leaf has of its full tensor.
struct Part {
  std::vector<int64_t> sizes;  ///< sizes of the full tensor
  Slice slice;
};

Part part_of_leaf(const at::Tensor& leaf) {
  const auto own = of_registered(leaf, [](const ShardedParameter& parameter) {
    return std::optional(Part{parameter.sizes(), parameter.slice()});
  });
  return own ? *own : Part{leaf.sizes().vec(), full_slice(leaf.sizes())};
}

}  // namespace

ShardedParameter::ShardedParameter(const at::Tensor& leaf, const comm::DeviceMesh& mesh,
                                   Layout layout)
    : leaf_(leaf), mesh_(mesh), layout_(std::make_shared<const Layout>(std::move(layout))) {
  LEVIN_CHECK(layout_->mesh() == mesh_.shape(), "shard.mesh",
              "got {} with the device mesh {}; the layout and the device mesh must have equal axes",
              to_text(*layout_), to_text(mesh_.shape()));
  slice_ = layout_->slice(mesh_.rank());
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  const bool is_new = registry.by_leaf.emplace(leaf_.unsafeGetTensorImpl(), this).second;
  LEVIN_CHECK(is_new, "shard.leaf",
              "a parameter of {} is already sharded by another strategy; prepare a module once",
              to_text(*layout_));
}

ShardedParameter::~ShardedParameter() {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  registry.by_leaf.erase(leaf_.unsafeGetTensorImpl());
  registry.remove_values(full_);
  for (const FullValues& cast : casts_) registry.remove_values(cast);
}

ShardedParameter* ShardedParameter::of(const at::Tensor& leaf) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  return registry.find(leaf);
}

ShardedParameter* ShardedParameter::of_values(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  const auto place = registry.by_values.find(tensor.storage().unsafeGetStorageImpl());
  return place == registry.by_values.end() ? nullptr : place->second;
}

void ShardedParameter::set_names(std::string name, std::string unit) {
  name_ = std::move(name);
  unit_name_ = std::move(unit);
  unseen_ =
      Error("strategy.fsdp.unseen",
            fmt::format(
                "parameter {} of unit {} is read while it is not gathered: from another thread "
                "than the forward pass, after fit, or through a view outside of the forward "
                "pass; read it within forward, or use levin::full({}) on all ranks",
                name_, unit_name_, name_))
          .what();
}

void ShardedParameter::set_values(at::Tensor rows, FullValues full) {
  {
    Registry& registry = Registry::instance();
    const std::lock_guard lock(registry.mutex);
    rows_ = std::move(rows);
    full_ = std::move(full);
    registry.add_values(full_, this);
  }
  show(rows_, /*is_full=*/false);
  torch::autograd::impl::materialize_autograd_meta(leaf_);  // begin_pass and end_pass look at it
}

const FullValues& ShardedParameter::full(at::ScalarType type) const {
  const auto cast = std::ranges::find(
      casts_, type, [](const FullValues& values) { return values.tensor().scalar_type(); });
  return cast == casts_.end() ? full_ : *cast;
}

void ShardedParameter::make_full(at::ScalarType type) {
  const at::Tensor& own = full_.tensor();
  if (full(type).tensor().scalar_type() == type) return;
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  casts_.emplace_back(own.sizes(), own.strides(), own.options().dtype(type));
  registry.add_values(casts_.back(), this);
}

bool ShardedParameter::holds(const at::Tensor& values) const {
  return leaf_.storage().unsafeGetStorageImpl() == values.storage().unsafeGetStorageImpl() &&
         leaf_.storage_offset() == values.storage_offset() && leaf_.sizes() == values.sizes() &&
         leaf_.scalar_type() == values.scalar_type();
}

void ShardedParameter::show(const at::Tensor& values, bool is_full) {
  leaf_.unsafeGetTensorImpl()->shallow_copy_from(values.getIntrusivePtr());
  shows_full_ = is_full;
}

void ShardedParameter::check_no_graph_of_rows() const {
  LEVIN_CHECK(
      torch::autograd::impl::try_get_grad_accumulator(leaf_) == nullptr, "strategy.fsdp.outside",
      "parameter {} of unit {} was used outside of a forward pass, where a rank holds only its "
      "shard, and that graph is still alive; use the parameter in a method of the module, called "
      "through the prepared model's ->, or use levin::full({}) for its values",
      name_, unit_name_, name_);
}

void ShardedParameter::check_before_pass() {
  // A tensor set within a pass is lost at its end, and other ranks may still have read the old values.
  LEVIN_CHECK(!std::exchange(was_replaced_, false), "strategy.fsdp.replaced",
              "parameter {} of unit {} was set to another tensor (set_data, Module::to or a load) "
              "within a forward or backward pass, when all ranks read its memory; set it between "
              "steps, within levin::WholeScope",
              name_, unit_name_);
  check_no_graph_of_rows();
  if (!holds(rows_)) adopt();
}

/// Takes over what Module::to, a load or set_data has put in the place of the rows.
void ShardedParameter::adopt() {
  LEVIN_CHECK(leaf_.sizes() == rows_.sizes() && leaf_.scalar_type() == rows_.scalar_type() &&
                  leaf_.device() == rows_.device(),
              "strategy.fsdp.replaced",
              "parameter {} of unit {} was replaced by a tensor of {} {} on {}, wanted this rank's "
              "rows: {} {} on {}; set the parameter within levin::WholeScope, or before prepare",
              name_, unit_name_, c10::toString(leaf_.scalar_type()), c10::str(leaf_.sizes()),
              leaf_.device().str(), c10::toString(rows_.scalar_type()), c10::str(rows_.sizes()),
              rows_.device().str());
  const at::NoGradGuard no_grad;
  rows_.copy_(leaf_.detach());
  version_ = -1;
}

void ShardedParameter::begin_pass() {
  show(full_.tensor(), /*is_full=*/true);
  if (!leaf_.requires_grad()) return;
  if (accumulator_ == nullptr) {
    accumulator_ = torch::autograd::impl::grad_accumulator(leaf_);
  } else {
    torch::autograd::impl::set_grad_accumulator(leaf_, weak(accumulator_));
  }
}

void ShardedParameter::end_pass() {
  was_replaced_ |= !holds(full_.tensor());
  if (accumulator_ == nullptr) {  // it was unfrozen meanwhile
    accumulator_ = torch::autograd::impl::try_get_grad_accumulator(leaf_);
  }
  show(rows_, /*is_full=*/false);
  torch::autograd::impl::set_grad_accumulator(leaf_, weak(NodePointer()));
}

void ShardedParameter::rest() {
  if (!holds(rows_)) adopt();
  show(full_.tensor(), /*is_full=*/true);
}

void ShardedParameter::wake() {
  const at::NoGradGuard no_grad;
  const at::Tensor values = leaf_.variable_data();
  const bool replaced = is_replaced();
  show(rows_, /*is_full=*/false);
  torch::autograd::impl::set_grad_accumulator(leaf_, weak(NodePointer()));
  if (!replaced) return;
  if (values.sizes() != at::IntArrayRef(sizes())) {
    leaf_.unsafeGetTensorImpl()->shallow_copy_from(values.getIntrusivePtr());
    adopt();
  } else {
    leaf_.copy_(own_part(leaf_, values));
  }
}

std::shared_ptr<ShardedParameter> register_shard(const at::Tensor& leaf,
                                                 const comm::DeviceMesh& mesh, Layout layout) {
  return std::make_shared<ShardedParameter>(leaf, mesh, std::move(layout));
}

at::Tensor own_values(const at::Tensor& leaf) {
  const at::Tensor rows = of_registered(leaf, [](const ShardedParameter& parameter) {
    return parameter.shows_full() ? parameter.rows() : at::Tensor();
  });
  return rows.defined() ? rows : leaf;
}

void note_written(const at::Tensor& leaf) { leaf.unsafeGetTensorImpl()->bump_version(); }

std::shared_ptr<const Layout> layout_of(const at::Tensor& leaf) {
  return of_registered(leaf, [](const ShardedParameter& parameter) { return parameter.layout(); });
}

std::vector<int64_t> whole_sizes(const at::Tensor& leaf) { return part_of_leaf(leaf).sizes; }

State::Value state_value(const at::Tensor& leaf, const at::Tensor& values) {
  if (layout_of(leaf) == nullptr) return values;
  Part part = part_of_leaf(leaf);
  // This does not look at the memory, which may not be here.
  const bool is_leaf =
      values.has_storage() && leaf.has_storage() &&
      values.storage().unsafeGetStorageImpl() == leaf.storage().unsafeGetStorageImpl();
  return TensorSlice{is_leaf ? own_values(leaf).detach() : values, std::move(part.sizes),
                     std::move(part.slice.offsets)};
}

namespace {

/// A state's tensor, or the part of one.
struct Held {
  const at::Tensor& local;
  std::vector<int64_t> sizes;  ///< sizes of the full tensor
  Slice slice;
};

Held held_by(const State::Value& value) {
  if (const auto* slice = std::get_if<TensorSlice>(&value)) {
    return {slice->local, slice->sizes, Slice{slice->offsets, slice->local.sizes().vec()}};
  }
  const at::Tensor& whole = std::get<at::Tensor>(value);
  return {whole, whole.sizes().vec(), full_slice(whole.sizes())};
}

std::string difference(const Part& part, const Held& held) {
  if (held.sizes != part.sizes) {
    return fmt::format("got {}, wanted {}", c10::str(at::IntArrayRef(held.sizes)),
                       c10::str(at::IntArrayRef(part.sizes)));
  }
  if (contains(held.slice, part.slice)) return "";
  return fmt::format("got {} of {}, wanted at least {}", to_text(held.slice),
                     c10::str(at::IntArrayRef(held.sizes)), to_text(part.slice));
}

}  // namespace

std::string difference(const at::Tensor& leaf, const State::Value& value) {
  return difference(part_of_leaf(leaf), held_by(value));
}

at::Tensor own_part(const at::Tensor& leaf, const State::Value& value) {
  const Part part = part_of_leaf(leaf);
  const Held held = held_by(value);
  const std::string other = difference(part, held);
  LEVIN_CHECK(other.empty(), "shard.local", "{}", other);
  // An empty part may lie beyond what is held.
  if (part.slice.numel() == 0) return at::empty(part.slice.sizes, held.local.options());
  return part_of(held.local, held.slice, part.slice);
}

std::optional<comm::DeviceMesh> mesh_of(const at::Tensor& leaf) {
  return of_registered(
      leaf, [](const ShardedParameter& parameter) { return std::optional(parameter.mesh()); });
}

std::optional<ShardedTensor> sharded(const at::Tensor& leaf) {
  const at::Tensor own = own_values(leaf);
  return of_registered(
      leaf, [&](const ShardedParameter& parameter) -> std::optional<ShardedTensor> {
        return ShardedTensor::from_local(own, parameter.mesh(), *parameter.layout());
      });
}

}  // namespace levin::shard
