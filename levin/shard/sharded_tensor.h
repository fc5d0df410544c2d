#pragma once
// ShardedTensor: this rank's part of a tensor, with the layout of the whole known on every rank. It
// holds values and is not differentiated: what a strategy's parameters, gradients and optimizer
// state are between steps, and what checkpoints are made of.
//
//   comm::DeviceMesh mesh(world, {{"dp", 4}});
//   auto weight = shard::distribute(whole, mesh, {shard::Shard{0}});   // 128 of 512 rows each
//   at::Tensor rows = weight.local();
//   auto columns = weight.redistribute({shard::Shard{1}});
//   at::Tensor corner = weight.slice({0, 0}, {8, 8});                  // on every rank
//   std::cout << weight;  // ShardedTensor Float [128, 64] of Layout [512, 64] on dp=4: Shard(0: ...)
//
// Follows torch.distributed.tensor.DTensor (distribute_tensor, from_local, full_tensor,
// redistribute).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
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

// DividedLeaf: says of a parameter, which is a leaf of autograd and a plain tensor, that its values
// are this rank's part of a whole. A strategy says so; states, norms and summaries ask.
//
//   const shard::DividedLeaf rows(parameter, mesh, layout);      // for the time of the object
//   shard::layout_of(parameter)->sizes();                        // of the whole
//   state.set("weight", shard::state_value(parameter, parameter.detach()));   // a TensorSlice

struct LeafEntry;

/// One object for a leaf at a time. From several threads.
class LEVIN_API DividedLeaf {
 public:
  /// Throws Error "shard.mesh" when the layout is of another mesh, "shard.leaf" for a leaf of which
  /// it was said already.
  DividedLeaf(const at::Tensor& leaf, const comm::DeviceMesh& mesh, Layout layout);
  ~DividedLeaf();
  DividedLeaf(DividedLeaf&&) noexcept;
  DividedLeaf& operator=(DividedLeaf&&) noexcept;

  /// For as long as the leaf itself shows the whole: where its part lies then, a tensor that outlives
  /// that; nullptr: the leaf is its part.
  void set_part(const at::Tensor* part);
  bool shows_whole() const;

 private:
  std::unique_ptr<LeafEntry> entry_;
};

/// None where the leaf is whole.
LEVIN_API std::shared_ptr<const Layout> layout_of(const at::Tensor& leaf);
/// This rank's part of the values, to be read and written: the leaf, or where its part lies while it shows
/// the whole. Who writes there calls note_written().
LEVIN_API at::Tensor own_values(const at::Tensor& leaf);
LEVIN_API void note_written(const at::Tensor& leaf);
/// Sizes of the whole, of any leaf.
LEVIN_API std::vector<int64_t> whole_sizes(const at::Tensor& leaf);

/// values: of the leaf's place and sizes, as the leaf itself, its gradient or a moment of it are. The
/// same as a state has them: a TensorSlice where the leaf is divided, else the tensor. For the leaf itself
/// while it shows the whole this is its part.
LEVIN_API State::Value state_value(const at::Tensor& leaf, const at::Tensor& values);
/// Of a state's tensor, whole or a slice, those elements that the leaf has: a view where it is one.
/// Throws Error "shard.local" for another whole and for a slice that lacks some of them.
LEVIN_API at::Tensor own_part(const at::Tensor& leaf, const State::Value& value);
/// What own_part() would say, "got [4], wanted [3]"; empty where it would throw nothing.
LEVIN_API std::string difference(const at::Tensor& leaf, const State::Value& value);

/// Of the layout; none where the leaf is whole.
LEVIN_API std::optional<comm::DeviceMesh> mesh_of(const at::Tensor& leaf);
/// The leaf as a tensor that is divided; none where it is whole.
LEVIN_API std::optional<ShardedTensor> sharded(const at::Tensor& leaf);

}  // namespace levin::shard

namespace levin {
using shard::sharded;
}  // namespace levin
