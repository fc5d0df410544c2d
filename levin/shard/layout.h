#pragma once
// Layout: how a tensor lies on a mesh of ranks. A value that every rank knows whole; arithmetic that
// needs no process.
//
//   Layout layout({512, 64}, {{"dp", 4}}, {Shard{0}});
//   layout.box(2);                  // [256:384, 0:64]
//   std::cout << layout;            // Layout [512, 64] on dp=4: Shard(0: 128 128 128 128)
//
// Follows torch.distributed.tensor's DTensorSpec, with cuts of any lengths.

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/mesh_shape.h"
#include "levin/shard/box.h"
#include "levin/shard/placement.h"

namespace levin::shard {

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
