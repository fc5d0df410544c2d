#pragma once
// ShardedTensor: a distributed tensor (DTensor) that is sharded or replicated over a mesh of ranks.
// Each rank has its local shard and knows the layout of the full tensor. Autograd does not see it:
// it holds the parameters, gradients and optimizer state of a strategy between steps, and
// checkpoints consist of such tensors.
//
//   comm::DeviceMesh mesh(world, {{"dp", 4}});
//   auto weight = shard::distribute(whole, mesh, {shard::Shard{0}});   // 128 of 512 rows each
//   at::Tensor rows = weight.local();
//   auto columns = weight.redistribute({shard::Shard{1}});
//   at::Tensor corner = weight.slice({0, 0}, {8, 8});                  // on every rank
//   std::cout << weight;  // ShardedTensor Float [128, 64] of Layout [512, 64] on dp=4: ...
//
// It follows torch.distributed.tensor.DTensor (distribute_tensor, from_local, full_tensor,
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

/// A distributed tensor: the local shard of this rank and the layout of the full tensor. Its
/// functions return contiguous tensors with memory of their own. All ranks of the mesh must call
/// the functions that communicate, with the same arguments unless a comment says otherwise. These
/// functions throw what their process group throws, and send nothing if every rank already has what
/// it needs.
class LEVIN_API ShardedTensor {
 public:
  /// Makes a distributed tensor whose shard on this rank is local, without a copy. Throws Error
  /// "shard.local" if local does not have the sizes that the layout gives this rank, and
  /// "shard.mesh" if the layout is of another mesh.
  static ShardedTensor from_local(at::Tensor local, comm::DeviceMesh mesh, Layout layout);

  /// Shard of this rank, as DTensor.to_local.
  const at::Tensor& local() const { return local_; }
  /// Layout of the full tensor.
  const Layout& layout() const { return layout_; }
  /// Mesh that the tensor is distributed over.
  const comm::DeviceMesh& mesh() const { return mesh_; }
  /// Sizes of the full tensor.
  const std::vector<int64_t>& sizes() const { return layout_.sizes(); }

  /// Returns the full tensor on every rank, as DTensor.full_tensor.
  at::Tensor full() const;
  /// Returns the tensor with other placements (reshard), as DTensor.redistribute. It takes one
  /// all-to-all, or two if they send fewer bytes (see halfway in shard/plan.h). Throws what Layout
  /// throws, and Error "shard.reduce" if a Partial cannot be reduced.
  ShardedTensor redistribute(std::vector<Placement> placements) const;
  /// Redistributes to another mesh that has the same ranks in the same order. Throws Error
  /// "shard.mesh" if it has other ranks.
  ShardedTensor redistribute(const comm::DeviceMesh& mesh, std::vector<Placement> placements) const;
  /// Returns a slice of the full tensor, given by offsets and sizes. Each rank may ask for another
  /// slice. Throws Error "shard.slice" on all ranks if one of them asks for more than the tensor has.
  at::Tensor slice(const std::vector<int64_t>& offsets, const std::vector<int64_t>& sizes) const;

 private:
  ShardedTensor(at::Tensor local, comm::DeviceMesh mesh, Layout layout);
  ShardedTensor moved(const comm::DeviceMesh& mesh, const Layout& to) const;

  at::Tensor local_;
  comm::DeviceMesh mesh_;
  Layout layout_;
};

/// Options of distribute.
struct DistributeOptions {
  /// True: only rank 0 has the full tensor and sends the shards. The tensors of the other ranks may
  /// be undefined; a defined one only names the device of the shard. False: every rank has the full
  /// tensor and nothing is sent.
  bool from_rank_zero = false;
};

/// Distributes a full tensor over a mesh, as torch.distributed.tensor.distribute_tensor. Throws
/// what Layout throws, and Error "shard.local" if the full tensor is undefined.
LEVIN_API ShardedTensor distribute(const at::Tensor& whole, const comm::DeviceMesh& mesh,
                                   std::vector<Placement> placements,
                                   const DistributeOptions& options = {});

/// Returns dtype, local sizes and layout: "ShardedTensor Float [128, 64] of Layout ...".
LEVIN_API std::string to_text(const ShardedTensor& tensor);
/// Writes to_text(tensor).
LEVIN_API std::ostream& operator<<(std::ostream& out, const ShardedTensor& tensor);

// register_shard: registers that a parameter (a plain tensor and a leaf of autograd) holds a shard of
// a full parameter. A sharding strategy registers its parameters; optimizers, state dicts, gradient
// norms and model summaries look them up.
//
//   const auto rows = shard::register_shard(parameter, mesh, layout);   // as long as it lives
//   shard::layout_of(parameter)->sizes();                        // sizes of the full parameter
//   state.set("weight", shard::state_value(parameter, parameter.detach()));   // a TensorSlice

class ShardedParameter;

/// Registers a leaf (parameter) as sharded for as long as the returned object lives. Several threads
/// may register and look up leaves. Throws Error "shard.mesh" if the layout is of another mesh, and
/// "shard.leaf" if the leaf is already registered.
LEVIN_API std::shared_ptr<ShardedParameter> register_shard(const at::Tensor& leaf,
                                                           const comm::DeviceMesh& mesh,
                                                           Layout layout);

/// Returns the layout of a sharded leaf, or nullptr if the leaf is not sharded.
LEVIN_API std::shared_ptr<const Layout> layout_of(const at::Tensor& leaf);
/// Returns the shard of this rank, for reading and writing. It is the leaf itself, or a tensor of the
/// strategy while the leaf holds the full parameter. Code that writes to it must call note_written()
/// afterwards.
LEVIN_API at::Tensor own_values(const at::Tensor& leaf);
/// Raises the leaf's version counter, as an in-place operator does, after a write to own_values().
LEVIN_API void note_written(const at::Tensor& leaf);
/// Returns the sizes of the full parameter, for a sharded leaf or any other.
LEVIN_API std::vector<int64_t> whole_sizes(const at::Tensor& leaf);

/// Returns values as an entry of a state dict: a TensorSlice if the leaf is sharded, else the
/// tensor. values has the place and sizes of the leaf: it is the leaf, its gradient or an optimizer
/// moment. If values is a leaf that holds the full parameter now, the result has its shard.
LEVIN_API State::Value state_value(const at::Tensor& leaf, const at::Tensor& values);
/// Returns the leaf's elements of a tensor in a state (a full tensor or a slice), as a view of it;
/// an empty shard gets a new tensor. Throws Error "shard.local" if the full sizes differ or if the
/// slice lacks some of the elements.
LEVIN_API at::Tensor own_part(const at::Tensor& leaf, const State::Value& value);
/// Returns the text of the error that own_part() would throw, "got [4], wanted [3]", or empty text
/// if it would not throw.
LEVIN_API std::string difference(const at::Tensor& leaf, const State::Value& value);

/// Returns the mesh of a sharded leaf, or nothing if the leaf is not sharded.
LEVIN_API std::optional<comm::DeviceMesh> mesh_of(const at::Tensor& leaf);
/// Returns a sharded leaf as a ShardedTensor, or nothing if the leaf is not sharded.
LEVIN_API std::optional<ShardedTensor> sharded(const at::Tensor& leaf);

}  // namespace levin::shard

namespace levin {
using shard::sharded;
}  // namespace levin
