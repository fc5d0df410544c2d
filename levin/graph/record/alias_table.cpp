#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "levin/graph/record/alias_table_impl.h"

namespace levin::graph {
namespace {

size_t hash_of(const c10::StorageImpl* storage, int64_t offset) {
  return (std::bit_cast<size_t>(storage) >> 4U) ^ (static_cast<size_t>(offset) << 20U);
}

}  // namespace

Geometry Geometry::of(const at::Tensor& tensor) {
  Geometry geometry;
  geometry.assign(tensor);
  return geometry;
}

void Geometry::assign(const at::Tensor& tensor) {
  storage = tensor.storage().unsafeGetStorageImpl();
  offset = tensor.storage_offset();
  sizes = tensor.sizes();
  strides = tensor.strides();
  dtype = tensor.scalar_type();
  is_conj = tensor.is_conj();
  is_neg = tensor.is_neg();
}

int64_t Geometry::numel() const {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

std::pair<int64_t, int64_t> Geometry::extent() const {
  const auto item = static_cast<int64_t>(c10::elementSize(dtype));
  if (numel() == 0) return {offset * item, offset * item};
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  return {offset * item, (last + 1) * item};
}

bool Geometry::is_dense() const {
  const auto [begin, end] = extent();
  return end - begin == numel() * static_cast<int64_t>(c10::elementSize(dtype));
}

size_t GeometryHash::operator()(const Geometry& geometry) const {
  return hash_of(geometry.storage, geometry.offset);
}

AliasTable::Place AliasTable::Place::of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset()};
}

size_t AliasTable::PlaceHash::operator()(const Place& place) const {
  return hash_of(place.storage, place.offset);
}

bool Geometry::is_of(const at::Tensor& tensor) const {
  return storage == tensor.storage().unsafeGetStorageImpl() && offset == tensor.storage_offset() &&
         tensor.sizes().equals(sizes) && tensor.strides().equals(strides) &&
         dtype == tensor.scalar_type() && is_conj == tensor.is_conj() && is_neg == tensor.is_neg();
}

Alias* AliasTable::find(const at::Tensor& tensor) {
  const Place begin = Place::of(tensor);
  for (auto place = aliases_.find(begin); place != aliases_.end() && place->first == begin;
       ++place) {
    if (place->second.geometry.is_of(tensor)) return &place->second;
  }
  return nullptr;
}

bool AliasTable::knows_storage(const at::Tensor& tensor) const {
  const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
  return found != storages_.end() && !found->second.regions.empty();
}

AliasTable::AliasTable() : aliases_(&memory_), storages_(&memory_), regions_(&memory_) {
  aliases_.reserve(256);
  storages_.reserve(256);
}

std::vector<Region*> AliasTable::overlapping(const Geometry& geometry) const {
  std::vector<Region*> found;
  const auto storage = storages_.find(geometry.storage);
  if (storage == storages_.end()) return found;
  const auto [begin, end] = geometry.extent();
  for (Region* region : storage->second.regions) {
    const auto [other_begin, other_end] = region->base->geometry.extent();
    const bool is_inside_empty = begin == end && other_begin <= begin && begin <= other_end;
    if ((begin < other_end && other_begin < end) || is_inside_empty) found.push_back(region);
  }
  return found;
}

Alias& AliasTable::add(const at::Tensor& tensor) {
  Alias& alias = aliases_.emplace(Place::of(tensor), Alias{})->second;
  alias.geometry.assign(tensor);
  return alias;
}

Alias& AliasTable::add_base(const at::Tensor& tensor, Value& value) {
  const c10::Storage& storage = tensor.storage();
  auto place = storages_.find(storage.unsafeGetStorageImpl());
  const bool is_new = place == storages_.end();
  if (is_new) {
    place =
        storages_.emplace(storage.unsafeGetStorageImpl(), Storage{storage.getWeakStorageImpl(), {}})
            .first;
  }
  Alias* known = is_new ? nullptr : find(tensor);
  Alias& alias = known != nullptr ? *known : add(tensor);
  Region& region = regions_.emplace_back(Region{.base = &alias});
  place->second.regions.push_back(&region);
  alias.region = &region;
  alias.parent = nullptr;
  alias.value = &value;
  alias.version = region.version;
  return alias;
}

Alias& AliasTable::add_view(const at::Tensor& tensor, Alias& parent, ViewOrigin origin,
                            Value* value) {
  Alias& alias = add(tensor);
  alias.region = parent.region;
  alias.parent = &parent;
  alias.origin = origin;
  alias.value = value;
  alias.version = value == nullptr ? 0 : parent.region->version;
  return alias;
}

void AliasTable::forget(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  std::erase_if(aliases_, [&](const auto& entry) { return entry.first.storage == storage; });
  const auto place = storages_.find(storage);
  if (place == storages_.end()) return;
  for (Region* region : place->second.regions) *region = {};
  place->second.regions.clear();
}

std::vector<KeptTensor> AliasTable::alive(
    const std::unordered_map<const c10::StorageImpl*, size_t>& known) const {
  std::vector<KeptTensor> kept;
  for (const Region& region : regions_) {
    if (region.base == nullptr || region.input != nullptr || region.is_released) continue;
    const Geometry& geometry = region.base->geometry;
    const auto& storage = storages_.at(geometry.storage).kept;
    const auto place = known.find(geometry.storage);
    const size_t count = place == known.end() ? 0 : place->second;
    if (storage.use_count() <= count || geometry.numel() == 0) continue;
    const Value* value = region.base->value;
    std::string made_by(value->node().target());
    if (!value->node().source().empty()) made_by += " in " + value->node().source();
    kept.push_back({storage,
                    geometry.sizes,
                    geometry.strides,
                    geometry.offset,
                    geometry.dtype,
                    std::move(made_by),
                    {},
                    &value->node()});
  }
  return kept;
}

at::Tensor KeptTensor::tensor() const {
  const c10::intrusive_ptr<c10::StorageImpl> held = storage.lock();
  if (held == nullptr) return {};
  // By no operator: not each device has one for that.
  const c10::DispatchKey key = c10::computeDispatchKey(dtype, at::kStrided, held->device());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(held), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

void AliasTable::merge(Region& from, Alias& into) {
  Alias* base = from.base;
  for (auto& [place, alias] : aliases_) {
    if (alias.region != &from) continue;
    alias.version = alias.version == from.version ? into.region->version : 0;
    alias.region = into.region;
  }
  base->parent = &into;
  base->origin = {};
  auto& regions = storages_.at(base->geometry.storage).regions;
  regions.erase(std::ranges::find(regions, &from));
  from = {};
}

}  // namespace levin::graph
