#pragma once
// ShardedTensor: this rank's part of a tensor, with the layout of the whole known on every rank.
// It holds values and is not differentiated: what a strategy's parameters, gradients and optimizer
// state are between steps, and what checkpoints are made of.
//
//   comm::DeviceMesh mesh(world, {{"dp", 4}});
//   auto weight = shard::distribute(whole, mesh, {shard::Shard{0}});   // 128 of 512 rows each
//   at::Tensor rows = weight.local();
//   auto columns = weight.redistribute({shard::Shard{1}});
//   at::Tensor corner = weight.slice({0, 0}, {8, 8});                  // on every rank
//   std::cout << weight;  // ShardedTensor Float [128, 64] of Layout [512, 64] on dp=4: Shard(0: ...)
//
// Follows torch.distributed.tensor.DTensor (distribute_tensor, from_local, full_tensor, redistribute).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/device_mesh.h"
#include "levin/shard/layout.h"

namespace levin::shard {

/// What its functions give is contiguous memory of its own. What talks to other ranks is called by
/// all ranks of the mesh, with the same arguments unless said otherwise, and throws what their
/// process group throws; nothing is sent where every rank has what it needs.
class LEVIN_API ShardedTensor {
 public:
  /// local, without a copy, as this rank's part. Throws Error "shard.local" when it has not the sizes
  /// that the layout gives this rank, and "shard.mesh" when the layout is of another mesh.
  static ShardedTensor from_local(at::Tensor local, comm::DeviceMesh mesh, Layout layout);

  const at::Tensor& local() const { return local_; }
  const Layout& layout() const { return layout_; }
  const comm::DeviceMesh& mesh() const { return mesh_; }
  /// Of the whole.
  const std::vector<int64_t>& sizes() const { return layout_.sizes(); }

  /// The whole, on every rank.
  at::Tensor full() const;
  /// The same tensor laid out otherwise, in one all_to_all; in two where that sends less (halfway).
  /// Throws what Layout throws, and Error "shard.reduce" where a Partial cannot be reduced.
  ShardedTensor redistribute(std::vector<Placement> placements) const;
  /// On another mesh of the same ranks in the same order. Throws Error "shard.mesh" for others.
  ShardedTensor redistribute(const comm::DeviceMesh& mesh, std::vector<Placement> placements) const;
  /// The box at these offsets of the whole. Each rank gets the one that it asks for. Throws Error
  /// "shard.box" on all of them when one asks for more than there is.
  at::Tensor slice(const std::vector<int64_t>& offsets, const std::vector<int64_t>& sizes) const;

 private:
  ShardedTensor(at::Tensor local, comm::DeviceMesh mesh, Layout layout);
  ShardedTensor moved(const comm::DeviceMesh& mesh, const Layout& to) const;

  at::Tensor local_;
  comm::DeviceMesh mesh_;
  Layout layout_;
};

struct DistributeOptions {
  /// The whole is rank 0's and sent to the others, whose tensors only say which device they want; they
  /// may be undefined. Otherwise every rank has the whole and nothing is sent.
  bool from_rank_zero = false;
};

/// Parts of a whole. Throws what Layout throws, and Error "shard.local" where the whole is undefined.
LEVIN_API ShardedTensor distribute(const at::Tensor& whole, const comm::DeviceMesh& mesh,
                                   std::vector<Placement> placements,
                                   const DistributeOptions& options = {});

LEVIN_API std::string to_text(const ShardedTensor& tensor);
LEVIN_API std::ostream& operator<<(std::ostream& out, const ShardedTensor& tensor);

}  // namespace levin::shard
