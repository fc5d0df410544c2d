#pragma once
// The steps of pools and resizing along one dimension after the other: parts, elements by their
// places, sums of runs of elements. They use no gather if a slice suffices, and no scatter at all.
//
//   // Each element three times, and back: the gradient of that.
//   const Hlo y = take_along(hlo, x, 2, {0, 0, 0, 1, 1, 1});
//   const Hlo g = sum_runs(hlo, y, 2, runs_of({0, 0, 0, 1, 1, 1}, 2));

#include <vector>

#include "levin/xla/stablehlo/builder.h"

namespace levin::xla {

/// Returns the slice from start on to before limit.
Hlo slice_along(Builder& hlo, const Hlo& x, int64_t dim, int64_t start, int64_t limit,
                int64_t stride = 1);
/// Negative low and high crop.
Hlo pad_along(Builder& hlo, const Hlo& x, const Hlo& value, int64_t dim, int64_t low, int64_t high,
              int64_t interior = 0);
/// result[i] = x[places[i]]
Hlo take_along(Builder& hlo, const Hlo& x, int64_t dim, const Dims& places);

/// Elements one after the other.
struct Run {
  int64_t start = 0, length = 0;
};
using Runs = std::vector<Run>;

/// Returns for each j < count the run of i with places[i] == j. The places must not decrease.
Runs runs_of(const Dims& places, int64_t count);
/// result[i] = the sum of x's elements in the run i; 0 of an empty one.
Hlo sum_runs(Builder& hlo, const Hlo& x, int64_t dim, const Runs& runs);

/// Numbers along a dimension, repeated to the sizes and in the dtype of another value.
Hlo spread_along(Builder& hlo, const std::vector<double>& numbers, const Hlo& like, int64_t dim);

}  // namespace levin::xla
