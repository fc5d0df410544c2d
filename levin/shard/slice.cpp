#include <fmt/format.h>

#include <algorithm>

#include "levin/shard/layout.h"

namespace levin::shard {

int64_t Slice::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

Slice full_slice(std::span<const int64_t> sizes) {
  return {std::vector<int64_t>(sizes.size(), 0), {sizes.begin(), sizes.end()}};
}

Slice intersection(const Slice& one, const Slice& other) {
  Slice both = one;
  for (size_t dim = 0; dim < both.sizes.size(); ++dim) {
    const int64_t begin = std::max(one.offsets[dim], other.offsets[dim]);
    const int64_t end = std::min(one.offsets[dim] + one.sizes[dim],  //
                                 other.offsets[dim] + other.sizes[dim]);
    both.offsets[dim] = begin;
    both.sizes[dim] = std::max<int64_t>(end - begin, 0);
  }
  return both;
}

bool contains(const Slice& outer, const Slice& inner) {
  return intersection(outer, inner).numel() == inner.numel();
}

at::Tensor part_of(const at::Tensor& local, const Slice& held, const Slice& inner) {
  at::Tensor part = local;
  for (size_t dim = 0; dim < held.sizes.size(); ++dim) {
    part = part.narrow(static_cast<int64_t>(dim), inner.offsets[dim] - held.offsets[dim],
                       inner.sizes[dim]);
  }
  return part;
}

std::string to_text(const Slice& slice) {
  std::string text;
  for (size_t dim = 0; dim < slice.sizes.size(); ++dim) {
    text += fmt::format("{}{}:{}", dim == 0 ? "" : ", ", slice.offsets[dim],
                        slice.offsets[dim] + slice.sizes[dim]);
  }
  return "[" + text + "]";
}

}  // namespace levin::shard
