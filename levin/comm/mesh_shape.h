#pragma once
// MeshShape: ranks as a grid with named axes; arithmetic that needs no process.
// DeviceMesh puts process groups on it, shard/ says by it who holds which part of a tensor.
//
//   MeshShape shape{{"replicate", 2}, {"shard", 4}};  // 8 ranks; shard varies fastest
//   shape.coordinates(6);                             // {1, 2}
//   shape.ranks_along("shard", 6);                    // {4, 5, 6, 7}
//   std::cout << shape;                               // replicate=2, shard=4
//
// Ranks are laid out as in torch.distributed.device_mesh.init_device_mesh.

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/text.h"

namespace levin::comm {

struct MeshAxis {
  std::string name;
  int64_t size = 1;

  bool operator==(const MeshAxis&) const = default;
};

class LEVIN_API MeshShape {
 public:
  /// No axes: one rank.
  MeshShape() = default;
  /// The last axis varies fastest. Throws Error "comm.mesh" for a size below 1 and for a name that
  /// comes twice.
  MeshShape(std::vector<MeshAxis> axes);
  MeshShape(std::initializer_list<MeshAxis> axes) : MeshShape(std::vector<MeshAxis>(axes)) {}

  const std::vector<MeshAxis>& axes() const { return axes_; }
  size_t num_axes() const { return axes_.size(); }
  /// Number of ranks.
  int64_t size() const;
  /// Throws Error "comm.mesh" naming the axes there are, as everything that takes a name.
  int64_t size(std::string_view axis) const { return axes_[index_of(axis)].size; }
  /// Place of an axis in axes().
  size_t index_of(std::string_view axis) const;

  /// One number an axis. Throws Error "comm.mesh" for a rank that the mesh does not have.
  std::vector<int64_t> coordinates(int64_t rank) const;
  /// The rank at the coordinates. Throws Error "comm.mesh" for such as the mesh does not have.
  int64_t rank(std::span<const int64_t> coordinates) const;

  /// The ranks that differ from this one along that axis alone, in the order of their coordinates.
  std::vector<int64_t> ranks_along(std::string_view axis, int64_t rank) const;
  /// The ranks in parts within which only the named axes vary, each in rank order, by their first.
  std::vector<std::vector<int64_t>> parts_along(const std::vector<std::string>& names) const;
  /// The shape of one of these parts: the named axes. Throws Error "comm.mesh" where they are not in
  /// the mesh's order.
  MeshShape along(const std::vector<std::string>& names) const;

  bool operator==(const MeshShape&) const = default;

 private:
  std::vector<MeshAxis> axes_;
};

using levin::to_text;  // that below would hide it in this namespace
/// "replicate=2, shard=4"; "one rank" without axes.
LEVIN_API std::string to_text(const MeshShape& shape);
LEVIN_API std::ostream& operator<<(std::ostream& out, const MeshShape& shape);

}  // namespace levin::comm
