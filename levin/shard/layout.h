#pragma once
// Layout: how a tensor lies on a mesh of ranks. A value that every rank knows whole; arithmetic
// that needs no process.
//
//   Layout layout({512, 64}, {{"dp", 4}}, {Shard{0}});
//   layout.box(2);                  // [256:384, 0:64]
//   std::cout << layout;            // Layout [512, 64] on dp=4: Shard(0: 128 128 128 128)
//
// Follows torch.distributed.tensor's DTensorSpec, with cuts of any lengths.

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

// Placement: what the ranks along one axis of a mesh hold of a tensor. A Layout has one an axis.
//
//   std::vector<Placement> rows = {Replicate{}, Shard{0}};       // a mesh of two axes
//   Placement ragged = Shard{0, {300, 0, 212}};  // three ranks, the second has none
//   Placement sums = Partial{ReduceOp::kSum};
//
// Follows torch.distributed.tensor's placements.

namespace levin::shard {

/// Each rank has the same.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

/// Each rank has a run of one dim, one behind the other in the order of their coordinates.
struct Shard {
  int64_t dim = 0;  ///< counted from the end where negative
  /// Length of each rank's run; none: chunk_cuts. Where axes to the left shard the same dim, it is
  /// their parts that are cut: one list for all of them, or a list for each, in their order.
  std::vector<int64_t> cuts = {};

  bool operator==(const Shard&) const = default;
};

/// Each rank has a value of the whole size; the values put together are the whole. Where several
/// axes are partial, those to the right are put together first.
struct Partial {
  ReduceOp op = ReduceOp::kSum;

  bool operator==(const Partial&) const = default;
};

using Placement = std::variant<Replicate, Shard, Partial>;

/// As torch.chunk and so DTensor cut: all parts as long as the first, but for the last that has
/// anything; those behind it are empty. 5 in 4 parts: 2 2 1 0.
LEVIN_API std::vector<int64_t> chunk_cuts(int64_t length, int64_t parts);

/// "sum", "mean", "min", "max", "product"
LEVIN_API std::string to_text(ReduceOp op);
/// "Replicate", "Shard(0: 2 2 1 0)", "Partial(sum)". More than four equal cuts are written "2 x8".
LEVIN_API std::string to_text(const Placement& placement);
LEVIN_API std::ostream& operator<<(std::ostream& out, const Placement& placement);

// Box: a part of a tensor, by its place in the whole. What ranks hold, ask for and send each other.
//
//   Box rows{{128, 0}, {64, 32}};              // rows 128 to 191, columns 0 to 31
//   Box both = intersection(rows, held);
//   at::Tensor view = part_of(local, held, both);

/// One offset and one size a dim; a tensor without dims is one element.
struct LEVIN_API Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;

  int64_t numel() const;
  bool operator==(const Box&) const = default;
};

LEVIN_API Box box_of_whole(std::span<const int64_t> sizes);
/// Of boxes of one tensor. Where they have nothing in common a size is 0.
LEVIN_API Box intersection(const Box& one, const Box& other);
/// True for an inner one without elements.
LEVIN_API bool contains(const Box& outer, const Box& inner);
/// A view of local, which is what the box held has of the whole: what inner, which held contains, has.
LEVIN_API at::Tensor part_of(const at::Tensor& local, const Box& held, const Box& inner);

/// "[128:192, 0:32]"
LEVIN_API std::string to_text(const Box& box);

class LEVIN_API Layout {
 public:
  /// One element on one rank.
  Layout() = default;
  /// sizes: of the whole. One placement an axis; the first cuts the whole, each other what those to
  /// its left have left of the dim. Throws Error "shard.layout" for a placement too many or too few, a
  /// dim that is not there and cuts that are not as many or not as long as what they cut.
  Layout(std::vector<int64_t> sizes, comm::MeshShape mesh, std::vector<Placement> placements);

  const std::vector<int64_t>& sizes() const { return sizes_; }
  const comm::MeshShape& mesh() const { return mesh_; }
  /// With dims from 0 on and all cuts written out.
  const std::vector<Placement>& placements() const { return placements_; }
  /// Of the whole.
  int64_t numel() const { return box_of_whole(sizes_).numel(); }

  /// What the rank at the coordinates has of the whole; with Partial, a summand of that. Throws Error
  /// "comm.mesh" for a rank that the mesh does not have.
  Box box(std::span<const int64_t> coordinates) const;
  Box box(int64_t rank) const { return box(mesh_.coordinates(rank)); }

  /// Layouts are equal where every rank holds the same and means the same by it.
  bool operator==(const Layout&) const = default;

 private:
  std::vector<int64_t> sizes_;
  comm::MeshShape mesh_;
  std::vector<Placement> placements_;
};

LEVIN_API std::string to_text(const Layout& layout);
LEVIN_API std::ostream& operator<<(std::ostream& out, const Layout& layout);

}  // namespace levin::shard
