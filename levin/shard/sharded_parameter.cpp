#include <ATen/ops/empty.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "levin/base/check.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::shard {

struct LeafEntry {
  at::Tensor leaf;  ///< held, so that no other tensor gets its address meanwhile
  comm::DeviceMesh mesh;
  std::shared_ptr<const Layout> layout;
  std::atomic<const at::Tensor*> part = nullptr;

  LeafEntry(at::Tensor of_leaf, comm::DeviceMesh on_mesh, Layout of_layout);
  ~LeafEntry();
};

namespace {

/// The sharded leaves of this process.
struct Table {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, const LeafEntry*> entries;
};

Table& table() {
  static Table& entries = *new Table;  // leaves of static objects may outlive any other static
  return entries;
}

/// Returns what `use` returns for the leaf's entry, or a default value if there is no entry.
template <class Use>
auto of_entry(const at::Tensor& leaf, Use use) -> decltype(use(std::declval<const LeafEntry&>())) {
  const std::lock_guard lock(table().mutex);
  const auto place = table().entries.find(leaf.unsafeGetTensorImpl());
  if (place == table().entries.end()) return {};
  return use(*place->second);
}

/// The part that a leaf has of its full tensor.
struct Part {
  std::vector<int64_t> sizes;  ///< sizes of the full tensor
  Box box;
};

Part part_of_leaf(const at::Tensor& leaf) {
  const auto divided = of_entry(leaf, [](const LeafEntry& entry) -> std::optional<Part> {
    return Part{entry.layout->sizes(), entry.layout->box(entry.mesh.rank())};
  });
  return divided ? *divided : Part{leaf.sizes().vec(), box_of_whole(leaf.sizes())};
}

}  // namespace

LeafEntry::LeafEntry(at::Tensor of_leaf, comm::DeviceMesh on_mesh, Layout of_layout)
    : leaf(std::move(of_leaf)),
      mesh(std::move(on_mesh)),
      layout(std::make_shared<const Layout>(std::move(of_layout))) {
  LEVIN_CHECK(layout->mesh() == mesh.shape(), "shard.mesh",
              "got {} with the device mesh {}; the layout and the device mesh must have equal axes",
              to_text(*layout), to_text(mesh.shape()));
  const std::lock_guard lock(table().mutex);
  const bool is_new = table().entries.emplace(leaf.unsafeGetTensorImpl(), this).second;
  LEVIN_CHECK(is_new, "shard.leaf",
              "a parameter of {} is already sharded by another strategy; prepare a module once",
              to_text(*layout));
}

LeafEntry::~LeafEntry() {
  const std::lock_guard lock(table().mutex);
  table().entries.erase(leaf.unsafeGetTensorImpl());
}

ShardedParameter::ShardedParameter(const at::Tensor& leaf, const comm::DeviceMesh& mesh,
                                   Layout layout)
    : entry_(std::make_unique<LeafEntry>(leaf, mesh, std::move(layout))) {}
ShardedParameter::~ShardedParameter() = default;
ShardedParameter::ShardedParameter(ShardedParameter&&) noexcept = default;
ShardedParameter& ShardedParameter::operator=(ShardedParameter&&) noexcept = default;
void ShardedParameter::set_part(const at::Tensor* part) { entry_->part = part; }
bool ShardedParameter::holds_full_tensor() const { return entry_->part != nullptr; }

at::Tensor own_values(const at::Tensor& leaf) {
  const at::Tensor part = of_entry(leaf, [](const LeafEntry& entry) {
    const at::Tensor* apart = entry.part;
    return apart != nullptr ? *apart : at::Tensor();
  });
  return part.defined() ? part : leaf;
}

void note_written(const at::Tensor& leaf) { leaf.unsafeGetTensorImpl()->bump_version(); }

std::shared_ptr<const Layout> layout_of(const at::Tensor& leaf) {
  return of_entry(leaf, [](const LeafEntry& entry) { return entry.layout; });
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
                     std::move(part.box.offsets)};
}

namespace {

/// A state's tensor, or the part of one.
struct Held {
  const at::Tensor& local;
  std::vector<int64_t> sizes;  ///< sizes of the full tensor
  Box box;
};

Held held_by(const State::Value& value) {
  if (const auto* slice = std::get_if<TensorSlice>(&value)) {
    return {slice->local, slice->sizes, Box{slice->offsets, slice->local.sizes().vec()}};
  }
  const at::Tensor& whole = std::get<at::Tensor>(value);
  return {whole, whole.sizes().vec(), box_of_whole(whole.sizes())};
}

std::string difference(const Part& part, const Held& held) {
  if (held.sizes != part.sizes) {
    return fmt::format("got {}, wanted {}", c10::str(at::IntArrayRef(held.sizes)),
                       c10::str(at::IntArrayRef(part.sizes)));
  }
  if (contains(held.box, part.box)) return "";
  return fmt::format("got {} of {}, wanted at least {}", to_text(held.box),
                     c10::str(at::IntArrayRef(held.sizes)), to_text(part.box));
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
  if (part.box.numel() == 0) return at::empty(part.box.sizes, held.local.options());
  return part_of(held.local, held.box, part.box);
}

std::optional<comm::DeviceMesh> mesh_of(const at::Tensor& leaf) {
  return of_entry(leaf, [](const LeafEntry& entry) { return std::optional(entry.mesh); });
}

std::optional<ShardedTensor> sharded(const at::Tensor& leaf) {
  const at::Tensor own = own_values(leaf);
  return of_entry(leaf, [&](const LeafEntry& entry) -> std::optional<ShardedTensor> {
    return ShardedTensor::from_local(own, entry.mesh, *entry.layout);
  });
}

}  // namespace levin::shard
