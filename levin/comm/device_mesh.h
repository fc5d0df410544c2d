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
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/mesh_shape.h"
#include "levin/comm/process_group.h"

namespace levin::comm {

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
