#include "levin/shard/plan.h"

#include <algorithm>
#include <functional>

#include "levin/base/check.h"

namespace levin::shard {
namespace {

const Partial* partial_along(const Layout& layout, size_t axis) {
  return std::get_if<Partial>(&layout.placements()[axis]);
}

/// Returns the axes along which summands stay unchanged: partial before and after, with no axis to
/// their left reduced by another operation, which would have to come after this one.
std::vector<bool> carried_axes(const Layout& from, const Layout& to) {
  std::vector<bool> carried(from.placements().size(), false);
  if (from.mesh() != to.mesh()) return carried;
  std::vector<ReduceOp> reduced;
  for (size_t axis = 0; axis < carried.size(); ++axis) {
    const Partial* before = partial_along(from, axis);
    if (before == nullptr) continue;
    carried[axis] = from.placements()[axis] == to.placements()[axis] &&
                    std::ranges::all_of(reduced, [&](ReduceOp op) { return op == before->op; });
    if (!carried[axis]) reduced.push_back(before->op);
  }
  return carried;
}

/// Returns the neutral element of the reductions along the axes that become partial, at coordinates
/// that do not keep the value. Axes to the right reduce first, so the value must survive them too.
std::optional<int64_t> fill_along(const Layout& to, const std::vector<int64_t>& coordinates,
                                  const std::vector<bool>& carried) {
  std::optional<int64_t> fill;
  for (size_t axis = 0; axis < coordinates.size(); ++axis) {
    const Partial* partial = partial_along(to, axis);
    if (partial == nullptr || coordinates[axis] == 0) continue;
    const bool has_value = axis < carried.size() && carried[axis] && !fill;
    if (has_value) continue;
    if (partial->op == ReduceOp::kSum) fill = 0;
    if (partial->op == ReduceOp::kProduct) fill = 1;
  }
  return fill;
}

void check_slice(const Slice& slice, const Layout& layout, size_t rank) {
  const std::vector<int64_t>& whole = layout.sizes();
  LEVIN_CHECK(
      slice.offsets.size() == whole.size() && slice.sizes.size() == whole.size(), "shard.slice",
      "rank {} asked for a slice of {} offsets and {} sizes in {}, wanted one of each per dim",
      rank, slice.offsets.size(), slice.sizes.size(), to_text(layout));
  for (size_t dim = 0; dim < whole.size(); ++dim) {
    LEVIN_CHECK(slice.offsets[dim] >= 0 && slice.sizes[dim] >= 0 &&
                    slice.sizes[dim] <= whole[dim] &&
                    slice.offsets[dim] <= whole[dim] - slice.sizes[dim],
                "shard.slice", "rank {} asked for {} of {}, wanted a slice within the full tensor",
                rank, to_text(slice), to_text(layout));
  }
}

/// Visits all coordinates along the axes, the last of them varying fastest; the others stay.
void for_each_place(const comm::MeshShape& mesh, const std::vector<size_t>& axes,
                    std::vector<int64_t>& coordinates, const std::function<void()>& body,
                    size_t next = 0) {
  if (next == axes.size()) return body();
  int64_t& coordinate = coordinates[axes[next]];
  for (coordinate = 0; coordinate < mesh.axes()[axes[next]].size; ++coordinate) {
    for_each_place(mesh, axes, coordinates, body, next + 1);
  }
}

/// Returns the longest dim that no placement cuts: its shards are parts of data that ranks have
/// anyway.
std::optional<int64_t> longest_uncut_dim(
    const std::vector<int64_t>& sizes,
    std::initializer_list<const std::vector<Placement>*> placements) {
  std::vector<bool> is_cut(sizes.size(), false);
  for (const auto* list : placements) {
    for (const Placement& placement : *list) {
      const auto* shard = std::get_if<Shard>(&placement);
      if (shard != nullptr) is_cut[static_cast<size_t>(shard->dim)] = true;
    }
  }
  std::optional<int64_t> longest;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (is_cut[dim] || (longest && sizes[static_cast<size_t>(*longest)] >= sizes[dim])) continue;
    longest = static_cast<int64_t>(dim);
  }
  return longest;
}

}  // namespace

Plan::Plan(const Layout& from, const std::vector<bool>& carried) : mesh_(from.mesh()) {
  for (int64_t rank = 0; rank < mesh_.size(); ++rank) held_.push_back(from.slice(rank));
  for (size_t axis = 0; axis < mesh_.num_axes(); ++axis) {
    const Partial* partial = partial_along(from, axis);
    const bool is_shard = std::holds_alternative<Shard>(from.placements()[axis]);
    const bool reduces = partial != nullptr && !carried[axis];
    sources_.push_back(is_shard ? Sources::kShards : reduces ? Sources::kParts : Sources::kOwn);
    if (!reduces) continue;
    const int64_t size = mesh_.axes()[axis].size;
    num_parts_ *= size;
    // Neighbours of one operation are one reduction, in the order of ranks.
    if (!reductions_.empty() && reductions_.back().op == partial->op) {
      reductions_.back().count *= size;
    } else {
      reductions_.push_back({partial->op, size});
    }
  }
  std::ranges::reverse(reductions_);
  std::erase_if(reductions_, [](const Reduction& reduction) { return reduction.count == 1; });
}

std::vector<size_t> Plan::axes_of(Sources sources) const {
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < sources_.size(); ++axis) {
    if (sources_[axis] == sources) axes.push_back(axis);
  }
  return axes;
}

bool Plan::wants_nothing(int64_t rank) const {
  return fill(rank).has_value() || wanted(rank).numel() == 0;
}

std::vector<Move> Plan::moves_to(int64_t rank) const {
  std::vector<Move> moves;
  if (wants_nothing(rank)) return moves;
  std::vector<int64_t> source = mesh_.coordinates(rank);
  for (const size_t axis : axes_of(Sources::kFirst)) source[axis] = 0;
  for_each_place(mesh_, axes_of(Sources::kShards), source, [&] {
    for (const size_t axis : axes_of(Sources::kParts)) source[axis] = 0;
    const Slice slice = intersection(held(mesh_.rank(source)), wanted(rank));
    if (slice.numel() == 0) return;
    int64_t part = 0;
    for_each_place(mesh_, axes_of(Sources::kParts), source,
                   [&] { moves.push_back({mesh_.rank(source), rank, slice, part++}); });
  });
  return moves;
}

std::vector<Move> Plan::moves_from(int64_t rank) const {
  std::vector<Move> moves;
  const std::vector<int64_t> source = mesh_.coordinates(rank);
  const int64_t part = part_of_source(source);
  for (int64_t to = 0; to < num_ranks(); ++to) {
    if (wants_nothing(to) || !gives(source, mesh_.coordinates(to))) continue;
    Slice slice = intersection(held(rank), wanted(to));
    if (slice.numel() > 0) moves.push_back({rank, to, std::move(slice), part});
  }
  return moves;
}

bool Plan::gives(const std::vector<int64_t>& source, const std::vector<int64_t>& receiver) const {
  for (size_t axis = 0; axis < source.size(); ++axis) {
    if (sources_[axis] == Sources::kOwn && source[axis] != receiver[axis]) return false;
    if (sources_[axis] == Sources::kFirst && source[axis] != 0) return false;
  }
  return true;
}

int64_t Plan::part_of_source(const std::vector<int64_t>& source) const {
  int64_t part = 0;
  for (const size_t axis : axes_of(Sources::kParts)) {
    part = part * mesh_.axes()[axis].size + source[axis];
  }
  return part;
}

bool Plan::is_local() const {
  for (int64_t rank = 0; rank < num_ranks(); ++rank) {
    if (wants_nothing(rank)) continue;
    if (num_parts_ > 1 || !gives(mesh_.coordinates(rank), mesh_.coordinates(rank))) return false;
    if (!contains(held(rank), wanted(rank))) return false;
  }
  return true;
}

Plan plan_redistribute(const Layout& from, const Layout& to) {
  LEVIN_CHECK(from.sizes() == to.sizes() && from.mesh().size() == to.mesh().size(), "shard.plan",
              "cannot redistribute from {} to {}, wanted the same sizes and number of ranks",
              to_text(from), to_text(to));
  const std::vector<bool> carried = carried_axes(from, to);
  Plan plan(from, carried);
  for (int64_t rank = 0; rank < to.mesh().size(); ++rank) {
    const std::vector<int64_t> place = to.mesh().coordinates(rank);
    plan.wanted_.push_back({to.slice(place), fill_along(to, place, carried)});
  }
  return plan;
}

Plan plan_slices(const Layout& from, const std::vector<Slice>& slices) {
  LEVIN_CHECK(std::ssize(slices) == from.mesh().size(), "shard.slice",
              "got {} slices of {}, wanted one per rank", slices.size(), to_text(from));
  Plan plan(from, std::vector<bool>(from.placements().size(), false));
  for (size_t rank = 0; rank < slices.size(); ++rank) {
    check_slice(slices[rank], from, rank);
    plan.wanted_.push_back({slices[rank]});
  }
  return plan;
}

Plan plan_from_first(const Layout& to) {
  const Layout whole(to.sizes(), to.mesh(),
                     std::vector<Placement>(to.mesh().num_axes(), Replicate{}));
  Plan plan = plan_redistribute(whole, to);
  std::ranges::fill(plan.sources_, Plan::Sources::kFirst);
  return plan;
}

int64_t bytes_sent(const Plan& plan, int64_t rank, int64_t element_bytes) {
  int64_t elements = 0;
  for (const Move& move : plan.moves_from(rank)) {
    if (move.to != rank) elements += move.slice.numel();
  }
  return elements * element_bytes;
}

// P ranks that reduce a value which all of them want get P - 1 summands of it each. In P shards they
// get a part in P of these, and then P - 1 results of that length.
std::optional<Layout> halfway(const Layout& from, const Layout& to) {
  if (from.mesh() != to.mesh()) return std::nullopt;
  const std::vector<bool> carried = carried_axes(from, to);
  const std::optional<int64_t> dim =
      longest_uncut_dim(from.sizes(), {&from.placements(), &to.placements()});
  if (!dim) return std::nullopt;
  std::vector<Placement> placements = from.placements();
  int64_t num_parts = 1;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (partial_along(from, axis) == nullptr || carried[axis]) continue;
    if (!std::holds_alternative<Replicate>(to.placements()[axis])) return std::nullopt;
    num_parts *= from.mesh().axes()[axis].size;
    placements[axis] = Shard{*dim};
  }
  if (num_parts <= 2) return std::nullopt;
  return Layout(from.sizes(), from.mesh(), std::move(placements));
}

}  // namespace levin::shard
