#pragma once
// Layout: how a distributed tensor is sharded or replicated over a mesh of ranks: sizes, mesh and
// placements. Every rank knows the complete layout, and its arithmetic needs no communication.
//
//   Layout layout({512, 64}, {{"dp", 4}}, {Shard{0}});
//   layout.slice(2);                  // [256:384, 0:64]
//   std::cout << layout;            // Layout [512, 64] on dp=4: Shard(0: 128 128 128 128)
//
// It follows torch.distributed.tensor's DTensorSpec, but the shards may have any lengths.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/device_mesh.h"
#include "levin/comm/process_group.h"

// Placement: what the ranks along one axis of a mesh hold of a tensor (Replicate, Shard or
// Partial). A Layout has one placement per mesh axis.
//
//   std::vector<Placement> rows = {Replicate{}, Shard{0}};       // a mesh of two axes
//   Placement uneven = Shard{0, {300, 0, 212}};  // three ranks; the second has no rows
//   Placement sums = Partial{ReduceOp::kSum};
//
// They follow torch.distributed.tensor's placements.

namespace levin::shard {

/// Each rank along the axis has all values.
struct Replicate {
  /// Two replications are always equal.
  bool operator==(const Replicate&) const = default;
};

/// Each rank along the axis has a contiguous range of one dim, in the order of the coordinates.
struct Shard {
  int64_t dim = 0;  ///< the sharded dim; a negative one counts from the end
  /// Length of each rank's range; empty means chunk_cuts. If an axis to the left shards the same
  /// dim, its shards are cut again. cuts is then either one list of lengths that applies to each of
  /// these shards, or the lists for each shard, one after another.
  std::vector<int64_t> cuts = {};

  /// Compares dim and cuts.
  bool operator==(const Shard&) const = default;
};

/// Each rank along the axis has a tensor of full size; reducing these tensors over the ranks gives
/// the values (a pending reduction). If several axes are partial, they are reduced from the last
/// axis to the first.
struct Partial {
  ReduceOp op = ReduceOp::kSum;  ///< the pending reduction

  /// Compares the reduction.
  bool operator==(const Partial&) const = default;
};

/// Placement of a tensor along one mesh axis.
using Placement = std::variant<Replicate, Shard, Partial>;

/// Cuts a length into parts, like torch.chunk and DTensor. All parts have the length of the first;
/// the last part that is not empty may be shorter, and the parts after it are empty. 5 in 4 parts:
/// 2 2 1 0.
LEVIN_API std::vector<int64_t> chunk_cuts(int64_t length, int64_t parts);

/// Returns "sum", "mean", "min", "max" or "product".
LEVIN_API std::string to_text(ReduceOp op);
/// Returns "Replicate", "Shard(0: 2 2 1 0)" or "Partial(sum)". A run of more than four equal cuts
/// is written as "2 x8".
LEVIN_API std::string to_text(const Placement& placement);
/// Writes to_text(placement).
LEVIN_API std::ostream& operator<<(std::ostream& out, const Placement& placement);

// Slice: a rectangular part of a tensor, by offsets and sizes in the full tensor. Ranks hold slices,
// request them, and send them to each other.
//
//   Slice rows{{128, 0}, {64, 32}};              // rows 128 to 191, columns 0 to 31
//   Slice both = intersection(rows, held);
//   at::Tensor view = part_of(local, held, both);

/// A part of a tensor: one offset and one size per dim. A tensor without dims has one element.
struct LEVIN_API Slice {
  std::vector<int64_t> offsets;  ///< first index in each dim of the full tensor
  std::vector<int64_t> sizes;    ///< number of indices in each dim

  /// Number of elements.
  int64_t numel() const;
  /// Compares offsets and sizes.
  bool operator==(const Slice&) const = default;
};

/// Returns the slice of a full tensor of these sizes.
LEVIN_API Slice full_slice(std::span<const int64_t> sizes);
/// Returns the common part of two slices of one tensor. If it is empty, at least one size is 0.
LEVIN_API Slice intersection(const Slice& one, const Slice& other);
/// Returns whether inner lies in outer. It is true for an inner slice without elements.
LEVIN_API bool contains(const Slice& outer, const Slice& inner);
/// Returns the elements of `inner` as a view of `local`. `local` has the elements of the slice
/// `held`, which must contain `inner`.
LEVIN_API at::Tensor part_of(const at::Tensor& local, const Slice& held, const Slice& inner);

/// Returns the ranges of a slice: "[128:192, 0:32]".
LEVIN_API std::string to_text(const Slice& slice);

/// Sizes, mesh and placements of a distributed tensor. From them every rank knows which shard each
/// rank has.
class LEVIN_API Layout {
 public:
  /// Makes the layout of one element on one rank.
  Layout() = default;
  /// Makes a layout. `sizes` are those of the full tensor; `placements` has one placement per mesh
  /// axis. The first placement cuts the full tensor; each later one cuts the shards that the axes
  /// to its left have made. Throws Error "shard.layout" for a wrong number of placements, a
  /// negative size, a dim that the tensor does not have, and cuts whose number or sum does not fit.
  Layout(std::vector<int64_t> sizes, comm::MeshShape mesh, std::vector<Placement> placements);

  /// Sizes of the full tensor.
  const std::vector<int64_t>& sizes() const { return sizes_; }
  /// Shape of the mesh.
  const comm::MeshShape& mesh() const { return mesh_; }
  /// The placements, with dims counted from 0 and all cuts filled in.
  const std::vector<Placement>& placements() const { return placements_; }
  /// Number of elements of the full tensor.
  int64_t numel() const { return full_slice(sizes_).numel(); }

  /// Returns the slice of the full tensor that the rank at the coordinates holds. With Partial, the
  /// rank holds its own, not yet reduced values of that slice. Throws Error "comm.mesh" for a rank
  /// that the mesh does not have.
  Slice slice(std::span<const int64_t> coordinates) const;
  /// Returns the slice that a rank holds. Throws Error "comm.mesh" for a rank that the mesh does not
  /// have.
  Slice slice(int64_t rank) const { return slice(mesh_.coordinates(rank)); }

  /// Returns whether every rank holds the same slice in both layouts, with the same placements.
  bool operator==(const Layout&) const = default;

 private:
  std::vector<int64_t> sizes_;
  comm::MeshShape mesh_;
  std::vector<Placement> placements_;
};

/// Returns "Layout [512, 64] on dp=4: Shard(0: 128 128 128 128)".
LEVIN_API std::string to_text(const Layout& layout);
/// Writes to_text(layout).
LEVIN_API std::ostream& operator<<(std::ostream& out, const Layout& layout);

}  // namespace levin::shard
