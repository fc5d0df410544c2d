#include "levin/xla/stablehlo/pool.h"

#include <functional>
#include <numeric>

namespace levin::xla {
namespace {

Dims numbers_of(Lowering& at, size_t index, int64_t count, const Dims& otherwise) {
  Dims numbers = at.list(index);
  if (numbers.empty()) return otherwise;
  if (numbers.size() == 1) numbers.resize(count, numbers.front());
  return numbers;
}

}  // namespace

int64_t Pool::numel() const {
  return std::accumulate(kernel.begin(), kernel.end(), int64_t{1}, std::multiplies<>());
}

Pool pool_of(Lowering& at, size_t first, int64_t rank, bool has_dilation) {
  Pool pool;
  pool.kernel = numbers_of(at, first, rank, {});
  pool.stride = numbers_of(at, first + 1, rank, pool.kernel);
  pool.padding = numbers_of(at, first + 2, rank, {});
  pool.dilation = has_dilation ? numbers_of(at, first + 3, rank, {}) : Dims(rank, 1);
  return pool;
}

Window window_of(const Hlo& x, const Pool& pool, const Dims& out) {
  const Dims ones(x.sizes.size(), 1);
  const Dims zeros(x.sizes.size(), 0);
  Window window{ones, ones, ones, ones, zeros, zeros};
  for (int64_t i = 0; i < pool.rank(); ++i) {
    const int64_t dim = x.rank() - pool.rank() + i;
    window.sizes[dim] = pool.kernel[i];
    window.stride[dim] = pool.stride[i];
    window.dilation[dim] = pool.dilation[i];
    window.pad_low[dim] = pool.padding[i];
    const int64_t reach =
        (out[dim] - 1) * pool.stride[i] + dilated(pool.kernel[i], pool.dilation[i]);
    window.pad_high[dim] = reach - x.sizes[dim] - pool.padding[i];
  }
  return window;
}

Runs parts_of(int64_t size, int64_t count) {
  Runs parts;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = i * size / count;
    parts.push_back({start, ((i + 1) * size + count - 1) / count - start});
  }
  return parts;
}

}  // namespace levin::xla
