#pragma once
// Buckets: which gradients are reduced together, and where each lies in its bucket's memory.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace levin::ddp {

/// One bucket before it has memory: parameters by index, in the order in which gradients arrive.
struct BucketPlan {
  std::vector<size_t> members;
  std::vector<int64_t> offsets;  ///< in elements, beside members
  int64_t count = 0;             ///< elements of all members
  at::ScalarType type = at::kFloat;
};

/// Fills buckets in the given order, those of one type apart from those of another; each is closed
/// as soon as it holds its cap, which for the first of all is first_bytes.
std::vector<BucketPlan> plan_buckets(std::span<const at::Tensor> parameters,
                                     std::span<const size_t> order,
                                     std::span<const at::ScalarType> types, int64_t first_bytes,
                                     int64_t cap_bytes);

/// A view into flat memory, laid out as that parameter is. Unlike a narrowed view it may be resized
/// and zeroed by whoever holds it as a gradient.
at::Tensor view_like(const at::Tensor& parameter, const at::Tensor& flat, int64_t offset);

}  // namespace levin::ddp
