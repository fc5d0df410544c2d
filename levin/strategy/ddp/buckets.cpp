#include "levin/strategy/ddp/buckets.h"

#include <ATen/ops/empty.h>

#include <map>

namespace levin::ddp {
namespace {

// Each gradient starts on a cache line, whatever its type.
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t count, int64_t width) {
  const int64_t unit = kAlignment / width;
  return (count + unit - 1) / unit * unit;
}

}  // namespace

std::vector<BucketPlan> plan_buckets(std::span<const at::Tensor> parameters,
                                     std::span<const size_t> order,
                                     std::span<const at::ScalarType> types, int64_t first_bytes,
                                     int64_t cap_bytes) {
  std::vector<BucketPlan> closed;
  std::map<at::ScalarType, BucketPlan> open;
  for (const size_t index : order) {
    BucketPlan& bucket = open[types[index]];
    const auto width = static_cast<int64_t>(c10::elementSize(types[index]));
    bucket.type = types[index];
    bucket.members.push_back(index);
    bucket.offsets.push_back(bucket.count);
    bucket.count += aligned(parameters[index].numel(), width);
    if (bucket.count * width < (closed.empty() ? first_bytes : cap_bytes)) continue;
    closed.push_back(std::move(bucket));
    open.erase(types[index]);
  }
  for (auto& [type, bucket] : open) closed.push_back(std::move(bucket));
  return closed;
}

at::Tensor view_like(const at::Tensor& parameter, const at::Tensor& flat, int64_t offset) {
  at::Tensor view = at::empty({0}, flat.options());
  const int64_t start = flat.storage_offset() + offset;
  if (parameter.is_non_overlapping_and_dense()) {
    view.set_(flat.storage(), start, parameter.sizes(), parameter.strides());
  } else {
    view.set_(flat.storage(), start, parameter.sizes());
  }
  return view;
}

}  // namespace levin::ddp
