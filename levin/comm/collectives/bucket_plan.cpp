#include "levin/comm/collectives/bucket_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace levin::comm {
namespace {

constexpr int64_t kCacheLine = 64;

int64_t bytes_of(const PlannedGradient& gradient) {
  return gradient.numel * static_cast<int64_t>(c10::elementSize(gradient.type));
}

/// Bytes of the gradient and of the gap up to the next cache line.
int64_t space_of(const PlannedGradient& gradient) {
  return (bytes_of(gradient) + kCacheLine - 1) / kCacheLine * kCacheLine;
}

/// The bucket of these members, laid out.
BucketPlan closed(std::vector<size_t> members, std::span<const PlannedGradient> gradients) {
  std::ranges::stable_partition(
      members, [&](size_t index) { return bytes_of(gradients[index]) % kCacheLine == 0; });
  BucketPlan bucket{.members = std::move(members)};
  bucket.type = gradients[bucket.members.front()].type;
  for (const size_t index : bucket.members) {
    bucket.offsets.push_back(bucket.count);
    bucket.count +=
        space_of(gradients[index]) / static_cast<int64_t>(c10::elementSize(bucket.type));
  }
  return bucket;
}

}  // namespace

std::vector<BucketPlan> plan_buckets(std::span<const PlannedGradient> gradients,
                                     std::span<const size_t> order, const BucketSizes& sizes) {
  struct Open {
    std::vector<size_t> members;
    int64_t bytes = 0;
  };
  std::vector<BucketPlan> buckets;
  std::map<at::ScalarType, Open> open;
  const auto close = [&](Open& bucket) {
    buckets.push_back(closed(std::move(bucket.members), gradients));
    bucket = {};
  };
  for (const size_t index : order) {
    const int64_t bytes = sizes.is_limit ? bytes_of(gradients[index]) : space_of(gradients[index]);
    const auto most = [&] { return buckets.empty() ? sizes.first_bytes : sizes.bytes; };
    Open& bucket = open[gradients[index].type];
    if (sizes.is_limit && !bucket.members.empty() && bucket.bytes + bytes > most()) close(bucket);
    bucket.members.push_back(index);
    bucket.bytes += bytes;
    if (!sizes.is_limit && bucket.bytes >= most()) close(bucket);
  }
  for (auto& [type, bucket] : open) {
    if (!bucket.members.empty()) close(bucket);
  }
  return buckets;
}

}  // namespace levin::comm
