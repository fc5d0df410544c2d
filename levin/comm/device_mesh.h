#pragma once
// DeviceMesh: the ranks of a run as a grid with named axes, and a process group along each.
// Strategies that mix data, shard and tensor parallelism take their groups from it.
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

// MeshShape: ranks as a grid with named axes; arithmetic that needs no process.
// DeviceMesh puts process groups on it, shard/ says by it who holds which part of a tensor.
//
//   MeshShape shape{{"replicate", 2}, {"shard", 4}};  // 8 ranks; shard varies fastest
//   shape.coordinates(6);                             // {1, 2}
//   shape.ranks_along("shard", 6);                    // {4, 5, 6, 7}
//   std::cout << shape;                               // replicate=2, shard=4
//
// Ranks are laid out as in torch.distributed.device_mesh.init_device_mesh.

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

/// A handle: copies share groups and sub-meshes.
class LEVIN_API DeviceMesh {
 public:
  /// All ranks of the group call it. Throws Error "comm.mesh" when the mesh has another number of
  /// ranks than the group.
  DeviceMesh(ProcessGroup world, MeshShape shape);

  const MeshShape& shape() const;
  const std::vector<MeshAxis>& axes() const { return shape().axes(); }
  int64_t size() const { return shape().size(); }
  int64_t size(std::string_view axis) const { return shape().size(axis); }
  /// This rank's number in the mesh, which is that in flat().
  int64_t rank() const;
  /// This rank's place along the axis.
  int64_t coordinate(std::string_view axis) const;
  /// The ranks that differ from this one along that axis alone, in the order of their coordinates:
  /// flat() where those are all. Throws Error "comm.mesh" naming the axes there are.
  ProcessGroup& group(std::string_view axis) const;
  /// The mesh of these axes, in this order of the mesh's own, that this rank is in. All ranks call
  /// it; its groups are made at the first call with these names.
  DeviceMesh operator[](const std::vector<std::string>& names) const;
  /// All axes as one, in the order of the mesh: the group of all its ranks.
  ProcessGroup& flat() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin::comm
