#pragma once
// LeafPlaces: finds the parameter and unit that a tensor's memory belongs to, and its image.

#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>

#include <cstddef>

#include "levin/strategy/fsdp/unit.h"

namespace levin::fsdp {

struct LeafPlace {
  Unit* unit = nullptr;
  size_t unit_number = 0;
  size_t leaf_number = 0;
  size_t image = 0;

  const Leaf& leaf() const { return unit->leaves()[leaf_number]; }
};

class LeafPlaces {
 public:
  void set(const at::Tensor& whole, const LeafPlace& place) {
    places_[whole.storage().unsafeGetStorageImpl()] = place;
  }
  void clear() { places_.clear(); }
  /// Returns nothing for a tensor that is no leaf.
  const LeafPlace* find(const at::Tensor& tensor) const {
    if (!tensor.defined() || !tensor.has_storage()) return nullptr;
    const auto place = places_.find(tensor.storage().unsafeGetStorageImpl());
    return place == places_.end() ? nullptr : &place->second;
  }

 private:
  ska::flat_hash_map<const c10::StorageImpl*, LeafPlace> places_;
};

}  // namespace levin::fsdp
