#pragma once
// BucketPlan: which gradients go to the other ranks together, and in which order. Strategy "ddp" follows it
// while backward runs, the graph pass data_parallel in a recorded step.
//
//   for (const BucketPlan& bucket : plan_buckets(gradients, order, {.first_bytes = 1 << 20}))
//     for (const size_t gradient : bucket.members) ...

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "levin/base/export.h"

namespace levin::comm {

struct PlannedGradient {
  int64_t numel = 0;
  at::ScalarType type = at::kFloat;  ///< on its way
};

struct BucketSizes {
  int64_t first_bytes = 1 << 20;  ///< size of the first bucket; a small one starts the reduction
                                  ///< early
  int64_t bytes = 25 << 20;       ///< size of the other buckets
  /// True: a bucket holds no more than that, or one gradient. False: it is closed once it holds that much.
  bool is_limit = false;
};

struct BucketPlan {
  /// Gradients by index. Gradients that end on a cache line come first, so that a replay can lay
  /// all of them side by side.
  std::vector<size_t> members;
  std::vector<int64_t> offsets;  ///< in elements, beside members; each starts on a cache line
  int64_t count = 0;             ///< elements of all members, with the gaps between them
  at::ScalarType type = at::kFloat;
};

/// Buckets in the order in which they start. They are filled in the given order of gradients, those
/// of one type apart from those of another.
LEVIN_API std::vector<BucketPlan> plan_buckets(std::span<const PlannedGradient> gradients,
                                               std::span<const size_t> order,
                                               const BucketSizes& sizes);

}  // namespace levin::comm
