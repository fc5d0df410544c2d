// Pools of means, and of means over parts of any size.
#include <algorithm>

#include "levin/xla/stablehlo/pool.h"

namespace levin::xla {
namespace {

/// Returns the number of elements in each window of a mean along a dimension, with or without
/// padding.
std::vector<double> counts_of(const Pool& pool, int64_t i, int64_t size, int64_t num_windows,
                              bool with_padding) {
  std::vector<double> counts;
  for (int64_t window = 0; window < num_windows; ++window) {
    const int64_t start = window * pool.stride[i] - pool.padding[i];
    const int64_t end = std::min(start + pool.kernel[i], size + pool.padding[i]);
    const int64_t first = with_padding ? start : std::max<int64_t>(start, 0);
    const int64_t last = with_padding ? end : std::min(end, size);
    counts.push_back(static_cast<double>(last - first));
  }
  return counts;
}

/// Arguments from `first` on: those of the pool, ceil_mode, count_include_pad, divisor_override.
Hlo divided_by_counts(Lowering& at, Hlo sums, const Pool& pool, size_t first, const Dims& sizes) {
  const bool has_divisor = at.node.arguments().size() > first + 5 && at.has(first + 5);
  if (has_divisor) {
    return at.hlo.binary("divide", sums, at.like(at.integer(first + 5), sums));
  }
  Hlo counts = at.like(1, sums);
  for (int64_t i = 0; i < pool.rank(); ++i) {
    const int64_t dim = sums.rank() - pool.rank() + i;
    const std::vector<double> numbers =
        counts_of(pool, i, sizes[dim], sums.sizes[dim], at.flag(first + 4));
    counts = at.hlo.binary("multiply", counts, spread_along(at.hlo, numbers, sums, dim));
  }
  return at.hlo.binary("divide", sums, counts);
}

LowerFunction avg_pool(int64_t rank) {
  return [rank](Lowering& at) {
    const Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Pool pool = pool_of(at, 1, rank, /*has_dilation=*/false);
    const Window window = window_of(x, pool, at.sizes());
    const Hlo sums = at.hlo.reduce_window("add", x, at.hlo.constant(0, x.dtype), window);
    at.give(divided_by_counts(at, sums, pool, 1, x.sizes));
  };
}

/// Sums over the windows that an element lies in: those of the gradient, spread out.
LowerFunction avg_pool_backward(int64_t rank) {
  return [rank](Lowering& at) {
    const Hlo grad = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Pool pool = pool_of(at, 2, rank, /*has_dilation=*/false);
    const Dims sizes = at.sizes();
    const Hlo parts = divided_by_counts(at, grad, pool, 2, sizes);
    Dims low(sizes.size(), 0);
    Dims high(sizes.size(), 0);
    Dims interior(sizes.size(), 0);
    for (int64_t i = 0; i < rank; ++i) {
      const int64_t dim = grad.rank() - rank + i;
      low[dim] = pool.kernel[i] - 1 - pool.padding[i];
      interior[dim] = pool.stride[i] - 1;
      const int64_t dilated = (grad.sizes[dim] - 1) * pool.stride[i] + 1;
      high[dim] = sizes[dim] + pool.kernel[i] - 1 - low[dim] - dilated;
    }
    const Hlo zero = at.hlo.constant(0, parts.dtype);
    const Hlo spread = at.hlo.pad(parts, zero, low, high, interior);
    const Pool one_apart{pool.kernel, Dims(rank, 1), Dims(rank, 0), Dims(rank, 1)};
    at.give(at.hlo.reduce_window("add", spread, zero, window_of(spread, one_apart, sizes)));
  };
}

/// Returns the parts that contain each element.
Runs parts_with(const Runs& parts, int64_t size) {
  Runs runs(size);
  for (size_t i = 0; i < parts.size(); ++i) {
    for (int64_t place = parts[i].start; place < parts[i].start + parts[i].length; ++place) {
      if (runs[place].length++ == 0) runs[place].start = static_cast<int64_t>(i);
    }
  }
  return runs;
}

/// Divides by the lengths of parts along a dimension.
Hlo divided_by_lengths(Lowering& at, const Hlo& x, int64_t dim, const Runs& parts) {
  std::vector<double> lengths;
  for (const Run& part : parts) lengths.push_back(static_cast<double>(part.length));
  return at.hlo.binary("divide", x, spread_along(at.hlo, lengths, x, dim));
}

LowerFunction adaptive_avg_pool(int64_t rank) {
  return [rank](Lowering& at) {
    Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Dims out = at.sizes();
    const Hlo zeros = at.hlo.constant(0, x.dtype, out);
    if (zeros.numel() == 0) return at.give(zeros);
    for (int64_t dim = x.rank() - rank; dim < x.rank(); ++dim) {
      const Runs parts = parts_of(x.sizes[dim], out[dim]);
      x = divided_by_lengths(at, sum_runs(at.hlo, x, dim, parts), dim, parts);
    }
    at.give(x);
  };
}

LowerFunction adaptive_avg_pool_backward(int64_t rank) {
  return [rank](Lowering& at) {
    Hlo grad = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Dims sizes = at.sizes();
    if (grad.numel() == 0) return at.give(at.hlo.constant(0, grad.dtype, sizes));
    for (int64_t dim = grad.rank() - rank; dim < grad.rank(); ++dim) {
      const Runs parts = parts_of(sizes[dim], grad.sizes[dim]);
      grad = divided_by_lengths(at, grad, dim, parts);
      const int64_t count = grad.sizes[dim];
      if (count > 0 && sizes[dim] % count == 0) {
        Dims places;
        for (int64_t i = 0; i < sizes[dim]; ++i) places.push_back(i / (sizes[dim] / count));
        grad = take_along(at.hlo, grad, dim, places);
      } else {
        grad = sum_runs(at.hlo, grad, dim, parts_with(parts, sizes[dim]));
      }
    }
    at.give(grad);
  };
}

}  // namespace

void add_mean_pools(LoweringTable& table) {
  table["aten::avg_pool2d"] = avg_pool(2);
  table["aten::avg_pool3d"] = avg_pool(3);
  table["aten::avg_pool2d_backward"] = avg_pool_backward(2);
  table["aten::avg_pool3d_backward"] = avg_pool_backward(3);
  table["aten::_adaptive_avg_pool2d"] = adaptive_avg_pool(2);
  table["aten::_adaptive_avg_pool3d"] = adaptive_avg_pool(3);
  table["aten::_adaptive_avg_pool2d_backward"] = adaptive_avg_pool_backward(2);
  table["aten::_adaptive_avg_pool3d_backward"] = adaptive_avg_pool_backward(3);
}

}  // namespace levin::xla
