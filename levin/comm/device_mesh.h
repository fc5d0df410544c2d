#pragma once
// DeviceMesh: the ranks of a run as a grid with named axes, with a process group along each axis.
// Strategies that combine several kinds of parallelism take their process groups from it.
//
//   DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 4}});   // 8 ranks; shard varies fastest
//   mesh.group("shard").all_gather(whole, part);                // the 4 ranks of this row
//   DeviceMesh rows = mesh[{"shard"}];
//
// Follows torch.distributed.device_mesh.

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/comm/process_group.h"

// MeshShape: the axis names and sizes of a mesh. It is plain arithmetic and needs no other process.
// DeviceMesh adds the process groups; shard/ uses it to tell which rank holds which shard.
//
//   MeshShape shape{{"replicate", 2}, {"shard", 4}};  // 8 ranks; shard varies fastest
//   shape.coordinates(6);                             // {1, 2}
//   shape.ranks_along("shard", 6);                    // {4, 5, 6, 7}
//   std::cout << shape;                               // replicate=2, shard=4
//
// Ranks are laid out as in torch.distributed.device_mesh.init_device_mesh.

namespace levin::comm {

/// One axis of a mesh.
struct MeshAxis {
  std::string name;  ///< name, unique in the mesh
  int64_t size = 1;  ///< number of ranks along the axis, at least 1

  /// Compares name and size.
  bool operator==(const MeshAxis&) const = default;
};

/// The names and sizes of a mesh's axes. Ranks are numbered so that the last axis varies fastest.
class LEVIN_API MeshShape {
 public:
  /// Makes the mesh without axes, which has one rank.
  MeshShape() = default;
  /// Makes a mesh with these axes; the last one varies fastest. Throws Error "comm.mesh" for a size
  /// below 1 and for a name that occurs twice.
  MeshShape(std::vector<MeshAxis> axes);
  /// Makes a mesh from a list of axes: MeshShape{{"dp", 2}, {"tp", 4}}.
  MeshShape(std::initializer_list<MeshAxis> axes) : MeshShape(std::vector<MeshAxis>(axes)) {}

  /// The axes, slowest first.
  const std::vector<MeshAxis>& axes() const { return axes_; }
  /// Number of axes.
  size_t num_axes() const { return axes_.size(); }
  /// Number of ranks: the product of the axis sizes.
  int64_t size() const;
  /// Returns the size of an axis. Throws Error "comm.mesh" for an unknown name, with the names of
  /// all axes; so does every function here that gets an axis name.
  int64_t size(std::string_view axis) const { return axes_[index_of(axis)].size; }
  /// Returns the index of an axis in axes().
  size_t index_of(std::string_view axis) const;

  /// Returns the coordinates of a rank, one per axis. Throws Error "comm.mesh" for a rank that the
  /// mesh does not have.
  std::vector<int64_t> coordinates(int64_t rank) const;
  /// Returns the rank at the coordinates. Throws Error "comm.mesh" for coordinates that the mesh
  /// does not have.
  int64_t rank(std::span<const int64_t> coordinates) const;

  /// Returns the ranks that have the coordinates of `rank` on all other axes, in the order of their
  /// coordinates along this axis.
  std::vector<int64_t> ranks_along(std::string_view axis, int64_t rank) const;
  /// Splits the ranks into parts within which only the named axes vary. Each part is in rank order,
  /// and the parts are sorted by their first rank.
  std::vector<std::vector<int64_t>> parts_along(const std::vector<std::string>& names) const;
  /// Returns the shape of one of these parts: the sub-mesh of the named axes. Throws Error
  /// "comm.mesh" if the names are not in the order of the mesh.
  MeshShape along(const std::vector<std::string>& names) const;

  /// Compares the axes.
  bool operator==(const MeshShape&) const = default;

 private:
  std::vector<MeshAxis> axes_;
};

using levin::to_text;  // the overload below would hide it in this namespace
/// Returns "replicate=2, shard=4", or "one rank" for a mesh without axes.
LEVIN_API std::string to_text(const MeshShape& shape);
/// Writes to_text(shape).
LEVIN_API std::ostream& operator<<(std::ostream& out, const MeshShape& shape);

/// The ranks of a process group as a mesh. It is a handle: copies share process groups and
/// sub-meshes. It follows torch.distributed.device_mesh.DeviceMesh.
class LEVIN_API DeviceMesh {
 public:
  /// Makes the mesh and a process group along each axis. All ranks of the group must call it.
  /// Throws Error "comm.mesh" if the mesh and the group have different numbers of ranks.
  DeviceMesh(ProcessGroup world, MeshShape shape);

  /// Names and sizes of the axes.
  const MeshShape& shape() const;
  /// The axes, slowest first.
  const std::vector<MeshAxis>& axes() const { return shape().axes(); }
  /// Number of ranks.
  int64_t size() const { return shape().size(); }
  /// Returns the size of an axis. Throws Error "comm.mesh" for an unknown name.
  int64_t size(std::string_view axis) const { return shape().size(axis); }
  /// Rank of this process in the mesh, which is its rank in flat().
  int64_t rank() const;
  /// Returns the coordinate of this process along an axis.
  int64_t coordinate(std::string_view axis) const;
  /// Returns the process group along an axis: the ranks that have the coordinates of this process
  /// on all other axes, in the order of their coordinates. If the axis contains all ranks of the
  /// mesh, this is flat(). Throws Error "comm.mesh" for an unknown name, with the names of all
  /// axes.
  ProcessGroup& group(std::string_view axis) const;
  /// Returns the sub-mesh of the named axes that contains this rank. The names must be in the order
  /// of the mesh. All ranks must call it; the first call with these names makes the process groups.
  DeviceMesh operator[](const std::vector<std::string>& names) const;
  /// Returns the process group of all ranks of the mesh, in rank order.
  ProcessGroup& flat() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin::comm
