#pragma once
// Parameters that are divided by rows over the ranks of a group, as a sharded strategy leaves them
// between steps.

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "levin/comm/device_mesh.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::test {

/// Rows of each rank: of every other parameter the last rank has none.
inline std::vector<int64_t> ragged_cuts(int64_t rows, int64_t ranks, size_t number) {
  if (ranks == 1) return {rows};
  const int64_t some = number % 2 == 0 ? ranks - 1 : ranks;
  std::vector<int64_t> cuts(static_cast<size_t>(ranks), 0);
  for (int64_t rank = 0; rank < some; ++rank) {
    cuts[static_cast<size_t>(rank)] = rows * (rank + 1) / some - rows * rank / some;
  }
  return cuts;
}

/// This rank's rows of a whole that is laid out so.
inline at::Tensor rows_in(const shard::Layout& layout, const comm::DeviceMesh& mesh,
                          const at::Tensor& whole) {
  const shard::Slice slice = layout.slice(mesh.rank());
  return shard::part_of(whole, shard::full_slice(whole.sizes()), slice);
}

/// Leaves the parameter its rows; it is divided as long as what is returned.
inline std::shared_ptr<shard::ShardedParameter> divide(const at::Tensor& parameter,
                                                       const comm::DeviceMesh& mesh,
                                                       std::vector<shard::Placement> placements) {
  const shard::Layout layout(parameter.sizes().vec(), mesh.shape(), std::move(placements));
  const at::Tensor rows = rows_in(layout, mesh, parameter.detach()).clone();
  const bool trained = parameter.requires_grad();
  parameter.set_data(rows);
  parameter.set_requires_grad(trained);
  return shard::register_shard(parameter, mesh, layout);
}

/// The same of all parameters, with ragged_cuts, along the mesh's last axis.
inline std::vector<std::shared_ptr<shard::ShardedParameter>> divide(
    const std::vector<NamedTensor>& parameters, const comm::DeviceMesh& mesh) {
  std::vector<std::shared_ptr<shard::ShardedParameter>> divided;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i].tensor;
    std::vector<shard::Placement> placements(mesh.axes().size(), shard::Replicate{});
    placements.back() = shard::Shard{0, ragged_cuts(parameter.size(0), mesh.axes().back().size, i)};
    divided.push_back(divide(parameter, mesh, std::move(placements)));
  }
  return divided;
}

/// Of the parameter's whole, its own.
inline at::Tensor own_of(const at::Tensor& parameter, const at::Tensor& whole) {
  return shard::own_part(parameter, State::Value(whole));
}

}  // namespace levin::test
