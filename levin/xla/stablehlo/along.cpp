#include "levin/xla/stablehlo/along.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>

namespace levin::xla {
namespace {

bool is_arithmetic(const Dims& places) {
  if (places.size() < 2) return true;
  const int64_t step = places[1] - places[0];
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i] - places[i - 1] != step) return false;
  }
  return step > 0;
}

/// Returns how often each element is repeated if places are like 0, 0, 1, 1, 2, 2 and cover all
/// elements; else 0.
int64_t repeats_of(const Dims& places, int64_t size) {
  const auto count = static_cast<int64_t>(places.size());
  if (size == 0 || count % size != 0) return 0;
  for (int64_t i = 0; i < count; ++i) {
    if (places[i] != i / (count / size)) return 0;
  }
  return count / size;
}

/// Returns whether the runs are equal parts of all.
bool are_parts(const Runs& runs, int64_t size) {
  const auto count = static_cast<int64_t>(runs.size());
  if (count == 0 || size == 0 || size % count != 0) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (runs[i].start != i * (size / count) || runs[i].length != size / count) return false;
  }
  return true;
}

Hlo gathered(Builder& hlo, const Hlo& x, int64_t dim, const Dims& places) {
  const auto count = static_cast<int64_t>(places.size());
  GatherDims dims{
      .collapsed = {dim}, .start_index_map = {dim}, .index_vector_dim = 1, .slice_sizes = x.sizes};
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) dims.offset.push_back(i);
  }
  dims.slice_sizes[dim] = 1;
  Dims sizes = x.sizes;
  sizes[dim] = count;
  return hlo.gather(x, hlo.literal(at::tensor(places, at::kInt)), dims, sizes);
}

Hlo reshaped_parts(Builder& hlo, const Hlo& x, int64_t dim, int64_t count) {
  Dims parts = x.sizes;
  parts[dim] = count;
  parts.insert(parts.begin() + dim + 1, x.sizes[dim] / count);
  return hlo.reshape(x, parts);
}

}  // namespace

Hlo slice_along(Builder& hlo, const Hlo& x, int64_t dim, int64_t start, int64_t limit,
                int64_t stride) {
  Dims starts(x.sizes.size(), 0);
  Dims limits = x.sizes;
  Dims strides(x.sizes.size(), 1);
  starts[dim] = start;
  limits[dim] = limit;
  strides[dim] = stride;
  return hlo.slice(x, starts, limits, strides);
}

Hlo pad_along(Builder& hlo, const Hlo& x, const Hlo& value, int64_t dim, int64_t low, int64_t high,
              int64_t interior) {
  if (low == 0 && high == 0 && interior == 0) return x;
  Dims lows(x.sizes.size(), 0);
  Dims highs(x.sizes.size(), 0);
  Dims interiors(x.sizes.size(), 0);
  lows[dim] = low;
  highs[dim] = high;
  interiors[dim] = interior;
  return hlo.pad(x, value, lows, highs, interiors);
}

Hlo take_along(Builder& hlo, const Hlo& x, int64_t dim, const Dims& places) {
  if (places.empty()) return slice_along(hlo, x, dim, 0, 0);
  if (is_arithmetic(places)) {
    const int64_t step = places.size() < 2 ? 1 : places[1] - places[0];
    return slice_along(hlo, x, dim, places.front(), places.back() + 1, step);
  }
  const int64_t repeats = repeats_of(places, x.sizes[dim]);
  if (repeats == 0) return gathered(hlo, x, dim, places);
  Dims sizes = x.sizes;
  sizes.insert(sizes.begin() + dim + 1, repeats);
  Dims kept(x.sizes.size());
  std::iota(kept.begin(), kept.end(), 0);
  for (int64_t i = dim + 1; i < x.rank(); ++i) ++kept[i];
  const Hlo repeated = hlo.broadcast_in_dim(x, sizes, kept);
  sizes.erase(sizes.begin() + dim + 1);
  sizes[dim] *= repeats;
  return hlo.reshape(repeated, sizes);
}

Runs runs_of(const Dims& places, int64_t count) {
  Runs runs(count);
  for (size_t i = 0; i < places.size(); ++i) {
    Run& run = runs[places[i]];
    if (run.length++ == 0) run.start = static_cast<int64_t>(i);
  }
  return runs;
}

Hlo sum_runs(Builder& hlo, const Hlo& x, int64_t dim, const Runs& runs) {
  const auto count = static_cast<int64_t>(runs.size());
  if (are_parts(runs, x.sizes[dim])) {
    if (count == x.sizes[dim]) return x;
    return hlo.reduce("add", reshaped_parts(hlo, x, dim, count), hlo.constant(0, x.dtype),
                      {dim + 1});
  }
  int64_t longest = 0;
  int64_t shortest = x.sizes[dim];
  for (const Run& run : runs) {
    longest = std::max(longest, run.length);
    shortest = std::min(shortest, run.length);
  }
  Dims sizes = x.sizes;
  sizes[dim] = count;
  const Hlo zeros = hlo.constant(0, x.dtype, sizes);
  Hlo sum = zeros;
  for (int64_t nth = 0; nth < longest; ++nth) {
    Dims places;
    std::vector<double> is_there;
    for (const Run& run : runs) {
      places.push_back(std::clamp<int64_t>(run.start + nth, 0, x.sizes[dim] - 1));
      is_there.push_back(nth < run.length ? 1 : 0);
    }
    Hlo part = take_along(hlo, x, dim, places);
    if (nth >= shortest) {
      const Hlo row = hlo.literal(at::tensor(is_there, at::kDouble).to(at::kBool));
      part = hlo.select(hlo.broadcast_in_dim(row, sizes, {dim}), part, zeros);
    }
    sum = nth == 0 ? part : hlo.binary("add", sum, part);
  }
  return sum;
}

Hlo spread_along(Builder& hlo, const std::vector<double>& numbers, const Hlo& like, int64_t dim) {
  const bool is_one = std::ranges::all_of(numbers, [&](double n) { return n == numbers.front(); });
  if (is_one && !numbers.empty()) {
    return hlo.expand(hlo.constant(numbers.front(), like.dtype), like.sizes);
  }
  const Hlo row = hlo.literal(at::tensor(numbers, at::kDouble).to(like.dtype));
  return hlo.broadcast_in_dim(row, like.sizes, {dim});
}

}  // namespace levin::xla
