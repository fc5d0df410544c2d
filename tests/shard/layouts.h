#pragma once
// Many layouts of one tensor, and what each rank holds under them: parts of a whole that is numbered
// through, and for Partial random summands that give the whole when they are put together.

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "levin/shard/layout.h"

namespace levin::test {

using shard::Layout;
using shard::Placement;
using Numbers = std::vector<int64_t>;

/// One way to lie along an axis. kRagged: unequal parts, some of them empty; kOwned: all on the last.
struct Way {
  enum Kind { kReplicate, kShard, kRagged, kOwned, kPartial } kind = kReplicate;
  int64_t dim = 0;
  ReduceOp op = ReduceOp::kSum;
};

inline Numbers cuts_of(Way::Kind kind, int64_t length, int64_t count) {
  if (kind == Way::kShard) return shard::chunk_cuts(length, count);
  Numbers cuts(static_cast<size_t>(count), 0);
  cuts.back() = kind == Way::kOwned ? length : length / 3;
  cuts[static_cast<size_t>(count - 1) / 2] += length - cuts.back();
  if (kind == Way::kOwned) std::fill(cuts.begin(), cuts.end() - 1, 0);
  return cuts;
}

/// Cuts are written out for each part that axes to the left have made.
inline Layout layout_of(const Numbers& sizes, const comm::MeshShape& mesh,
                        const std::vector<Way>& ways) {
  std::vector<Numbers> parts;
  for (const int64_t size : sizes) parts.push_back({size});
  std::vector<Placement> placements;
  for (size_t axis = 0; axis < ways.size(); ++axis) {
    const auto& [kind, dim, op] = ways[axis];
    if (kind == Way::kReplicate) {
      placements.emplace_back(shard::Replicate{});
    } else if (kind == Way::kPartial) {
      placements.emplace_back(shard::Partial{op});
    } else {
      Numbers cuts;
      for (const int64_t length : parts[static_cast<size_t>(dim)]) {
        const Numbers more = cuts_of(kind, length, mesh.axes()[axis].size);
        cuts.insert(cuts.end(), more.begin(), more.end());
      }
      parts[static_cast<size_t>(dim)] = cuts;
      placements.emplace_back(shard::Shard{dim, cuts});
    }
  }
  return {sizes, mesh, placements};
}

/// Every combination of the ways.
inline std::vector<Layout> layouts_of(const Numbers& sizes, const comm::MeshShape& mesh,
                                      const std::vector<Way>& choices) {
  std::vector<Layout> layouts;
  size_t number = 1;
  for (size_t axis = 0; axis < mesh.num_axes(); ++axis) number *= choices.size();
  for (size_t i = 0; i < number; ++i) {
    std::vector<Way> ways;
    for (size_t axis = 0, rest = i; axis < mesh.num_axes(); ++axis, rest /= choices.size()) {
      ways.push_back(choices[rest % choices.size()]);
    }
    layouts.push_back(layout_of(sizes, mesh, ways));
  }
  return layouts;
}

/// From -4 to 4, always the same for the same numbers.
inline int64_t drawn(uint64_t path, uint64_t axis, int64_t coordinate) {
  uint64_t bits =
      (path * 1315423911U + axis * 97 + static_cast<uint64_t>(coordinate)) * 2654435761U;
  bits ^= bits >> 15;
  return static_cast<int64_t>(bits * 2246822519U >> 7 & 0xffff) % 9 - 4;
}

/// Of value, what the rank at coordinate c of an axis has; all of them put together are value.
inline int64_t summand_along(ReduceOp op, int64_t value, int64_t size, int64_t c,
                             const std::function<int64_t(int64_t)>& draw) {
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    const int64_t away = 1 + std::abs(draw(c));
    const bool is_it = c == std::abs(draw(size)) % size;
    return is_it ? value : op == ReduceOp::kMax ? value - away : value + away;
  }
  if (op == ReduceOp::kProduct) {
    const auto sign = [&](int64_t k) { return draw(k) % 2 == 0 ? 1 : -1; };
    if (c > 0) return sign(c);
    for (int64_t k = 1; k < size; ++k) value *= sign(k);
    return value;
  }
  if (c > 0) return draw(c);
  if (op == ReduceOp::kMean) value *= size;
  for (int64_t k = 1; k < size; ++k) value -= draw(k);
  return value;
}

/// What the rank at the coordinates has in place of an element of the whole.
inline int64_t summand(const Layout& layout, const Numbers& coordinates, int64_t element,
                       int64_t value) {
  uint64_t path = static_cast<uint64_t>(element) + 1;
  for (size_t axis = 0; axis < coordinates.size(); ++axis) {
    const auto* partial = std::get_if<shard::Partial>(&layout.placements()[axis]);
    if (partial == nullptr) continue;
    value = summand_along(partial->op, value, layout.mesh().axes()[axis].size, coordinates[axis],
                          [&](int64_t k) { return drawn(path, axis, k); });
    path = path * 31 + static_cast<uint64_t>(coordinates[axis]) + 1;
  }
  return value;
}

/// Numbered through, none of them 0 or 1.
inline at::Tensor whole_of(const Numbers& sizes, at::ScalarType type = at::kLong) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return torch::arange(100, 100 + count).to(type).view(sizes);
}

/// The part of whole_of(layout.sizes()) that the rank holds.
inline at::Tensor local_of(const Layout& layout, int64_t rank, at::ScalarType type = at::kLong) {
  const at::Tensor whole = whole_of(layout.sizes()).clone();
  const Numbers coordinates = layout.mesh().coordinates(rank);
  auto* first = whole.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < whole.numel(); ++i) first[i] = summand(layout, coordinates, i, first[i]);
  return part_of(whole, shard::full_slice(layout.sizes()), layout.slice(rank)).to(type).clone();
}

}  // namespace levin::test
