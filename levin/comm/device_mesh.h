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
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"

namespace levin::comm {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
};

class LEVIN_API DeviceMesh {
 public:
  /// All ranks of the group call it. Throws Error "comm.mesh" when the product of the sizes is not
  /// the group's, or a name comes twice.
  DeviceMesh(ProcessGroup world, std::vector<MeshAxis> axes);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int64_t size() const;
  int64_t size(std::string_view axis) const;
  /// This rank's place along the axis.
  int64_t coordinate(std::string_view axis) const;
  /// The ranks that differ from this one along that axis alone, in the order of their coordinates.
  /// Throws Error "comm.mesh" naming the axes there are.
  ProcessGroup& group(std::string_view axis);
  /// The mesh of these axes, in this order of the mesh's own, that this rank is in. All ranks call
  /// it.
  DeviceMesh operator[](const std::vector<std::string>& names);
  /// All axes as one, in the order of the mesh: the group of all its ranks.
  ProcessGroup& flat() { return world_; }

 private:
  size_t index_of(std::string_view axis) const;

  ProcessGroup world_;
  std::vector<MeshAxis> axes_;
  std::vector<int64_t> coordinates_;
  std::vector<ProcessGroup> groups_;
};

}  // namespace levin::comm
