#pragma once
// fsdp_mesh: how the ranks of a run share parameters. Each group along the axis "fsdp" holds one copy
// of them, sharded; the groups along the axis "replicate" have the same shards (HSDP, hybrid sharding).

#include <cstdint>
#include <string_view>

#include "levin/base/export.h"
#include "levin/comm/device_mesh.h"

namespace levin::fsdp {

/// Reads --mesh: "replicate=2,fsdp=4", one of the two (the other is what is left), "hosts" (a copy on
/// each host) or "" (one copy). The names of Accelerate (dp_replicate, dp_shard) and "dp", "shard" do
/// too. Throws Error "strategy.fsdp.mesh" for other text and for sizes whose product is not the number
/// of ranks.
LEVIN_API comm::MeshShape fsdp_mesh_shape(std::string_view text, int64_t num_ranks,
                                          int64_t num_hosts);
/// Makes that mesh. All ranks call it. Throws also Error "strategy.fsdp.mesh" for "hosts" where hosts
/// have different numbers of ranks, or ranks that do not follow each other.
comm::DeviceMesh fsdp_mesh(std::string_view text, comm::ProcessGroup& group);

/// The ranks that hold one copy of the parameters together.
inline comm::ProcessGroup& shard_group(const comm::DeviceMesh& mesh) {
  return mesh.group(mesh.axes().back().name);
}
/// The ranks that have the shard of this rank; it alone, if parameters are not replicated.
inline comm::ProcessGroup replica_group(const comm::DeviceMesh& mesh) {
  return mesh.axes().size() > 1 ? mesh.group(mesh.axes().front().name) : comm::ProcessGroup();
}

}  // namespace levin::fsdp
