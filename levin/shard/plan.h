#pragma once
// Plan: the slices of a tensor that ranks send each other to reach another layout. Every rank
// computes the plan for itself, with the same result; exchange.h carries it out.
//
//   Plan plan = plan_redistribute(from, to);
//   for (const Move& move : plan.moves_to(2)) ...    // what rank 2's new part is made of
//   int64_t bytes = bytes_sent(plan, 2, sizeof(float));
//
// A rank keeps the slices that it has, and every other slice comes to it once. If several ranks have a
// slice, it comes from the one whose coordinates on the replicated axes are the receiver's own: so
// replicas share the work, and a mesh whose outer axis replicates over hosts sends nothing between
// hosts. A rank that needs a reduced value gets the summands of all ranks that have one, and puts
// them together itself in the order of those ranks: bits do not depend on who computes.

#include <cstdint>
#include <optional>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/shard/layout.h"

namespace levin::shard {

/// One slice that a rank gives another, or keeps.
struct Move {
  int64_t from = 0;
  int64_t to = 0;
  Slice slice;       ///< by its place in the whole
  int64_t part = 0;  ///< index of the summand of the slice, below Plan::num_parts

  bool operator==(const Move&) const = default;
};

/// Runs of so many parts are put together to one each.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  int64_t count = 1;

  bool operator==(const Reduction&) const = default;
};

/// Ranks are those of the flat group of the mesh.
class LEVIN_API Plan {
 public:
  int64_t num_ranks() const { return std::ssize(wanted_); }
  /// Returns the rank's part at the beginning; wanted() is its part when all is done.
  const Slice& held(int64_t rank) const { return held_[static_cast<size_t>(rank)]; }
  const Slice& wanted(int64_t rank) const { return wanted_[static_cast<size_t>(rank)].slice; }
  /// 0 or 1 where all of the rank's new part is that, and nothing is moved for it: what changes
  /// nothing in the reduction of the new layout.
  std::optional<int64_t> fill(int64_t rank) const {
    return wanted_[static_cast<size_t>(rank)].fill;
  }

  /// Summands of each element, in the order of their ranks, and how they are put together: one
  /// Reduction after the other. 1 and none where nothing is reduced.
  int64_t num_parts() const { return num_parts_; }
  const std::vector<Reduction>& reductions() const { return reductions_; }

  /// Returns the moves that make the rank's new part, its own included: slice after slice, all parts of
  /// each. Between two ranks there is one slice at most.
  std::vector<Move> moves_to(int64_t rank) const;
  /// Returns the moves that the rank gives, by receiver, itself included.
  std::vector<Move> moves_from(int64_t rank) const;
  /// No rank sends another anything.
  bool is_local() const;

 private:
  friend LEVIN_API Plan plan_redistribute(const Layout& from, const Layout& to);
  friend LEVIN_API Plan plan_slices(const Layout& from, const std::vector<Slice>& slices);
  friend LEVIN_API Plan plan_from_first(const Layout& to);
  /// Along an axis the sources of a rank are those with its own coordinate, the first, those whose
  /// slice has what it wants, or all, whose values are summands.
  enum class Sources { kOwn, kFirst, kShards, kParts };
  struct Wanted {
    Slice slice;
    std::optional<int64_t> fill = {};
  };

  Plan(const Layout& from, const std::vector<bool>& carried);
  std::vector<size_t> axes_of(Sources sources) const;
  bool gives(const std::vector<int64_t>& source, const std::vector<int64_t>& receiver) const;
  int64_t part_of_source(const std::vector<int64_t>& source) const;
  bool wants_nothing(int64_t rank) const;

  comm::MeshShape mesh_;  // mesh of the sources
  std::vector<Sources> sources_;
  std::vector<Slice> held_;
  std::vector<Wanted> wanted_;
  std::vector<Reduction> reductions_;
  int64_t num_parts_ = 1;
};

/// Plans between any two layouts of a tensor on the same ranks, whose meshes may differ. A new
/// Partial is full on the first rank of the axis (sum: the others have 0, product: 1) or on all
/// ranks (mean, min, max). An axis that is and stays partial is not reduced if that gives the same.
/// Throws Error "shard.plan" for layouts of different tensors or numbers of ranks.
LEVIN_API Plan plan_redistribute(const Layout& from, const Layout& to);
/// A slice of the whole for each rank. Throws Error "shard.slice" for another number of slices, or dims, and
/// for one that is not within the whole.
LEVIN_API Plan plan_slices(const Layout& from, const std::vector<Slice>& slices);
/// Plans from the first rank, which has the full tensor, to all.
LEVIN_API Plan plan_from_first(const Layout& to);

/// Returns the bytes that the rank sends to other ranks.
LEVIN_API int64_t bytes_sent(const Plan& plan, int64_t rank, int64_t element_bytes);

/// A layout to go through where that sends fewer bytes than going at once: values that more than two
/// ranks reduce and all of them want are reduced in shards and then gathered.
LEVIN_API std::optional<Layout> halfway(const Layout& from, const Layout& to);

}  // namespace levin::shard
