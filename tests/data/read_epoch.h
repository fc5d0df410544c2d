#pragma once
// Reads loaders over the data set {"index": 0, 1, 2, ...}: what order they give.

#include <ATen/ops/arange.h>

#include <numeric>
#include <vector>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/support/off_disk.h"

namespace levin::test {

using Order = std::vector<std::vector<int64_t>>;  ///< the indices of each batch

/// 0, 1, ..., size - 1.
inline std::vector<int64_t> from_zero(int64_t size) {
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

inline DatasetPtr numbers(int64_t size) {
  return off_disk(data::tensors({{"index", at::arange(size, at::kLong)}}));
}

inline std::vector<int64_t> indices_of(const Batch& batch) {
  const at::Tensor index = batch["index"].contiguous();
  const auto* first = index.const_data_ptr<int64_t>();
  return {first, first + index.numel()};
}

/// At most so many batches of the running epoch; all that are left when it is below 0.
inline Order read(DataLoader& loader, int64_t batches = -1) {
  Order order;
  for (Batch batch; batches < 0 || std::ssize(order) < batches;) {
    if (!loader.next(batch)) break;
    order.push_back(indices_of(batch));
  }
  return order;
}

inline std::vector<int64_t> flat(const Order& order) {
  std::vector<int64_t> all;
  for (const auto& batch : order) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

}  // namespace levin::test
