#pragma once
// Placement: what the ranks along one axis of a mesh hold of a tensor.
// A Layout has one an axis.
//
//   std::vector<Placement> rows = {Replicate{}, Shard{0}};       // a mesh of two axes
//   Placement ragged = Shard{0, {300, 0, 212}};                  // three ranks, the second has none
//   Placement sums = Partial{ReduceOp::kSum};
//
// Follows torch.distributed.tensor's placements.

#include <cstdint>
#include <iosfwd>
#include <string>
#include <variant>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/collectives/reduce_op.h"

namespace levin::shard {

/// Each rank has the same.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

/// Each rank has a run of one dim, one behind the other in the order of their coordinates.
struct Shard {
  int64_t dim = 0;  ///< counted from the end where negative
  /// Length of each rank's run; none: chunk_cuts. Where axes to the left shard the same dim, it is
  /// their parts that are cut: one list for all of them, or a list for each, in their order.
  std::vector<int64_t> cuts = {};

  bool operator==(const Shard&) const = default;
};

/// Each rank has a value of the whole size; the values put together are the whole. Where several
/// axes are partial, those to the right are put together first.
struct Partial {
  ReduceOp op = ReduceOp::kSum;

  bool operator==(const Partial&) const = default;
};

using Placement = std::variant<Replicate, Shard, Partial>;

/// As torch.chunk and so DTensor cut: all parts as long as the first, but for the last that has
/// anything; those behind it are empty. 5 in 4 parts: 2 2 1 0.
LEVIN_API std::vector<int64_t> chunk_cuts(int64_t length, int64_t parts);

/// "sum", "mean", "min", "max", "product"
LEVIN_API std::string to_text(ReduceOp op);
/// "Replicate", "Shard(0: 2 2 1 0)", "Partial(sum)". More than four equal cuts are written "2 x8".
LEVIN_API std::string to_text(const Placement& placement);
LEVIN_API std::ostream& operator<<(std::ostream& out, const Placement& placement);

}  // namespace levin::shard
