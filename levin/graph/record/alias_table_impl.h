#pragma once
// Keeps track of the value that holds each memory's contents while a graph is recorded.

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <unordered_map>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/record/kept_tensor.h"

namespace levin::graph {

/// The place of a tensor's elements, by which its aliases know each other.
struct Geometry {
  const c10::StorageImpl* storage = nullptr;
  int64_t offset = 0;
  at::DimVector sizes;
  at::DimVector strides;
  at::ScalarType dtype = at::kFloat;
  bool is_conj = false;
  bool is_neg = false;

  static Geometry of(const at::Tensor& tensor);
  void assign(const at::Tensor& tensor);
  bool is_of(const at::Tensor& tensor) const;
  bool operator==(const Geometry&) const = default;
  int64_t numel() const;
  /// In bytes from the storage's start, as [begin, end).
  std::pair<int64_t, int64_t> extent() const;
  bool is_dense() const;
};

/// By its start alone: few tensors begin at the same element.
struct GeometryHash {
  size_t operator()(const Geometry& geometry) const;
};

struct Region;

/// The step from a base to its view: an operator and its arguments but the first.
struct ViewLink {
  const OperatorInfo* op = nullptr;
  std::vector<Argument> constants;
};

/// The same where it has not been asked for: the result of a view operator, which of its results,
/// or a part in its sizes and strides.
struct ViewOrigin {
  const Node* node = nullptr;  ///< none: by sizes and strides
  size_t result = 0;
};

/// A way to look at a region.
struct Alias {
  Geometry geometry;
  Region* region = nullptr;
  Alias* parent = nullptr;  ///< none: the region's base
  ViewOrigin origin;        ///< in the parent
  Value* value = nullptr;
  int64_t version = 0;

  /// Returns whether its value is what the region holds now.
  bool is_newest() const;
  void set(Value& newest);
};

/// A tensor of a collective that has been started.
struct UnderWay {
  Alias* alias = nullptr;
  Value* value = nullptr;  ///< what the start gives; nullptr for a tensor that is only sent
  const Node* start = nullptr;
};

/// Memory that is written as a whole: a tensor that an operator made, or that came from outside.
struct Region {
  Alias* base = nullptr;
  int64_t version = 1;
  Value* input = nullptr;    ///< its contents when the recording began
  bool is_argument = false;  ///< and that is one of the function's inputs
  bool is_unwritten = false;
  /// A fingerprint of its present contents, if the host may write to it.
  std::optional<size_t> contents = {};
  bool is_for_host = false;  ///< made for the host to fill
  /// Its contents before and after the recording are nobody's (Recorder::forget_contents).
  bool is_released = false;
  /// Aliases that a collective writes to or sends, from its start to its wait.
  std::vector<UnderWay> under_way = {};
};

inline bool Alias::is_newest() const { return version == region->version; }

inline void Alias::set(Value& newest) {
  value = &newest;
  version = region->version;
}

class AliasTable {
 public:
  AliasTable();
  Alias* find(const at::Tensor& tensor);
  /// The regions that have bytes in common with it.
  std::vector<Region*> overlapping(const Geometry& geometry) const;
  bool knows_storage(const at::Tensor& tensor) const;
  Alias& add_base(const at::Tensor& tensor, Value& value);
  /// Adds a tensor that is not known yet.
  Alias& add_view(const at::Tensor& tensor, Alias& parent, ViewOrigin origin, Value* value);
  /// Forgets the storage's aliases.
  void forget(const at::Tensor& tensor);
  /// Makes all aliases of a region views of another region, whose base they lie in.
  void merge(Region& from, Alias& into);

  /// Memory that an operator made and that is held more often than it is known to be.
  std::vector<KeptTensor> alive(
      const std::unordered_map<const c10::StorageImpl*, size_t>& known) const;

  /// In the order in which they were met.
  const std::pmr::deque<Region>& regions() const { return regions_; }

 private:
  struct Storage {
    /// The address stays taken, the memory does not.
    c10::weak_intrusive_ptr<c10::StorageImpl> kept;
    c10::SmallVector<Region*, 1> regions;
  };
  /// The first element of a tensor.
  struct Place {
    const c10::StorageImpl* storage = nullptr;
    int64_t offset = 0;

    static Place of(const at::Tensor& tensor);
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };
  Alias& add(const at::Tensor& tensor);

  std::pmr::monotonic_buffer_resource memory_;  ///< memory of the entries: they are freed together
  std::pmr::unordered_multimap<Place, Alias, PlaceHash> aliases_;
  std::pmr::unordered_map<const c10::StorageImpl*, Storage> storages_;
  std::pmr::deque<Region> regions_;
};

}  // namespace levin::graph
