#pragma once
// DividedLeaf: says of a parameter, which is a leaf of autograd and a plain tensor, that its values
// are this rank's part of a whole. A strategy says so; states, norms and summaries ask.
//
//   const shard::DividedLeaf rows(parameter, mesh, layout);      // for the time of the object
//   shard::layout_of(parameter)->sizes();                        // of the whole
//   state.set("weight", shard::state_value(parameter, parameter.detach()));   // a TensorSlice

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/comm/device_mesh.h"
#include "levin/shard/layout.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::shard {

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
