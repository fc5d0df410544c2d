// Pools of greatest elements, with their places. No scatter where windows are small: a gradient
// asks of each place of the window which windows chose it.
#include <algorithm>
#include <optional>

#include "levin/xla/stablehlo/pool.h"

namespace levin::xla {
namespace {

/// Each element's position in the plane of the last `rank` dims, like ATen's indices.
Hlo places_in_plane(Lowering& at, const Dims& sizes, int64_t rank) {
  Hlo places = at.hlo.constant(0, at::kInt, sizes);
  int64_t step = 1;
  for (auto dim = static_cast<int64_t>(sizes.size()) - 1; rank > 0; --dim, --rank) {
    const Hlo index = at.hlo.iota(at::kInt, sizes, dim);
    places = at.hlo.binary("add", places, at.hlo.binary("multiply", index, at.like(step, index)));
    step *= sizes[dim];
  }
  return places;
}

/// Greatest elements so far, and where they were: nowhere is -1.
struct Greatest {
  Hlo value, place;
};

/// The first of the greatest elements wins, and the last of the NaNs: in ATen's order.
Greatest greater(Lowering& at, const Greatest& best, const Greatest& other) {
  Hlo wins = at.hlo.compare("GT", other.value, best.value);
  const Hlo nowhere = at.hlo.compare("LT", best.place, at.like(0, best.place));
  wins = at.hlo.binary("or", wins, nowhere);
  if (at::isFloatingType(best.value.dtype)) {
    wins = at.hlo.binary("or", wins, at.hlo.compare("NE", other.value, other.value));
  }
  return {at.hlo.select(wins, other.value, best.value),
          at.hlo.select(wins, other.place, best.place)};
}

Greatest each_of(Lowering& at, const Hlo& x, int64_t rank) {
  return {x, places_in_plane(at, x.sizes, rank)};
}

/// Along one dimension of the window after the other, the last first: the order of rows is kept,
/// and a window costs the sum of its sizes, not their product.
Greatest greatest_of(Lowering& at, const Hlo& x, const Pool& pool, const Dims& out) {
  Greatest best = each_of(at, x, pool.rank());
  for (int64_t i = pool.rank() - 1; i >= 0; --i) {
    const int64_t dim = x.rank() - pool.rank() + i;
    const int64_t reach =
        (out[dim] - 1) * pool.stride[i] + pool.dilation[i] * (pool.kernel[i] - 1) + 1;
    const int64_t high = std::max<int64_t>(0, reach - x.sizes[dim] - pool.padding[i]);
    const auto padded = [&](const Hlo& value, const Hlo& by) {
      return pad_along(at.hlo, value, by, dim, pool.padding[i], high);
    };
    const Greatest all = {padded(best.value, at.hlo.lowest(x.dtype)),
                          padded(best.place, at.hlo.constant(-1, at::kInt))};
    for (int64_t nth = 0; nth < pool.kernel[i]; ++nth) {
      const int64_t start = nth * pool.dilation[i];
      const auto part = [&](const Hlo& value) {
        return slice_along(at.hlo, value, dim, start, start + (out[dim] - 1) * pool.stride[i] + 1,
                           pool.stride[i]);
      };
      const Greatest other = {part(all.value), part(all.place)};
      best = nth == 0 ? other : greater(at, best, other);
    }
  }
  return best;
}

void give_greatest(Lowering& at, const Hlo& x, const Pool& pool) {
  const Dims out = at.sizes();
  if (at.node.output(1).users().empty()) {
    const Hlo lowest = at.hlo.lowest(x.dtype);
    at.give(0, at.hlo.reduce_window("maximum", x, lowest, window_of(x, pool, out)));
    return at.give(1, at.hlo.constant(0, at::kLong, out));
  }
  const Greatest best = greatest_of(at, x, pool, out);
  at.give(0, best.value);
  at.give(1, best.place);
}

LowerFunction max_pool(int64_t rank) {
  return [rank](Lowering& at) {
    give_greatest(at, at.tensor(0), pool_of(at, 1, rank, /*has_dilation=*/true));
  };
}

/// Each element of `values` [.., windows] is added to where its place says: for each place of the
/// kernel those windows that chose it, spread out to where they lie.
Hlo sum_by_places(Lowering& at, const Hlo& values, const Hlo& places, const Pool& pool,
                  const Dims& sizes) {
  const int64_t first = values.rank() - pool.rank();
  const Hlo zeros = at.like(0, values);
  Hlo sum = zeros;
  for (int64_t nth = 0; nth < pool.numel(); ++nth) {
    Dims low(sizes.size(), 0);
    Dims high(sizes.size(), 0);
    Dims interior(sizes.size(), 0);
    Hlo wanted = at.hlo.constant(0, at::kInt, values.sizes);
    int64_t rest = nth;
    int64_t step = 1;
    for (int64_t i = pool.rank() - 1; i >= 0; --i) {
      const int64_t dim = first + i;
      low[dim] = (rest % pool.kernel[i]) * pool.dilation[i] - pool.padding[i];
      rest /= pool.kernel[i];
      interior[dim] = pool.stride[i] - 1;
      high[dim] = sizes[dim] - low[dim] - (values.sizes[dim] - 1) * pool.stride[i] - 1;
      const Hlo window = at.hlo.iota(at::kInt, values.sizes, dim);
      const Hlo moved = at.hlo.binary(
          "add", at.hlo.binary("multiply", window, at.like(pool.stride[i] * step, window)),
          at.like(low[dim] * step, window));
      wanted = at.hlo.binary("add", wanted, moved);
      step *= sizes[dim];
    }
    const Hlo chosen = at.hlo.select(at.hlo.compare("EQ", places, wanted), values, zeros);
    const Hlo spread = at.hlo.pad(chosen, at.hlo.constant(0, values.dtype), low, high, interior);
    sum = nth == 0 ? spread : at.hlo.binary("add", sum, spread);
  }
  return sum;
}

/// [planes, elements] of the last `rank` dimensions.
Hlo as_rows(Lowering& at, const Hlo& x, int64_t rank) {
  int64_t elements = 1;
  for (int64_t i = x.rank() - rank; i < x.rank(); ++i) elements *= x.sizes[i];
  return at.hlo.reshape(x, {elements == 0 ? 0 : x.numel() / elements, elements});
}

/// Values put ("") or added ("add") to where they belong in planes of zeros.
Hlo scattered_to(Lowering& at, std::string_view by, const Hlo& values, const Hlo& places,
                 int64_t rank, const Dims& sizes) {
  const Hlo zeros = as_rows(at, at.hlo.constant(0, values.dtype, sizes), rank);
  if (values.numel() == 0) return at.hlo.reshape(zeros, sizes);
  const Hlo updates = as_rows(at, values, rank);
  const Hlo columns = at.hlo.convert(as_rows(at, places, rank), at::kInt);
  Dims with_vector = updates.sizes;
  with_vector.push_back(1);
  const Hlo indices =
      at.hlo.concatenate({at.hlo.reshape(at.hlo.iota(at::kInt, updates.sizes, 0), with_vector),
                          at.hlo.reshape(columns, with_vector)},
                         2);
  const ScatterDims dims{.update_window = {},
                         .inserted_window = {0, 1},
                         .scatter_dims_to_operand = {0, 1},
                         .index_vector_dim = 2};
  return at.hlo.reshape(at.hlo.scatter(by, zeros, indices, updates, dims), sizes);
}

/// Windows of so many places are unrolled at most.
constexpr int64_t kMostPlaces = 128;

LowerFunction max_pool_backward(int64_t rank) {
  return [rank](Lowering& at) {
    const Hlo grad = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Hlo places = at.hlo.convert(at.tensor(7), at::kInt);
    const Pool pool = pool_of(at, 2, rank, /*has_dilation=*/true);
    const bool is_small = pool.numel() <= kMostPlaces && grad.numel() > 0;
    at.give(is_small ? sum_by_places(at, grad, places, pool, at.sizes())
                     : scattered_to(at, "add", grad, places, rank, at.sizes()));
  };
}

/// The pool whose windows are the parts, where they are of one size.
std::optional<Pool> even_pool(const Dims& sizes, const Dims& out, int64_t rank) {
  Pool pool;
  for (size_t dim = sizes.size() - rank; dim < sizes.size(); ++dim) {
    if (out[dim] == 0 || sizes[dim] % out[dim] != 0) return std::nullopt;
    pool.kernel.push_back(sizes[dim] / out[dim]);
  }
  pool.stride = pool.kernel;
  pool.padding = Dims(rank, 0);
  pool.dilation = Dims(rank, 1);
  return pool;
}

/// The elements of a part one after the other; a short part's last is taken again, which changes
/// nothing.
Greatest greatest_of_parts(Lowering& at, const Hlo& x, int64_t rank, const Dims& out) {
  Greatest best = each_of(at, x, rank);
  for (int64_t dim = x.rank() - 1; dim >= x.rank() - rank; --dim) {
    const Runs parts = parts_of(x.sizes[dim], out[dim]);
    const Greatest all = best;
    const int64_t longest = std::ranges::max(parts, {}, &Run::length).length;
    for (int64_t nth = 0; nth < longest; ++nth) {
      Dims places;
      for (const Run& part : parts) {
        places.push_back(part.start + std::min(nth, part.length - 1));
      }
      const Greatest other = {take_along(at.hlo, all.value, dim, places),
                              take_along(at.hlo, all.place, dim, places)};
      best = nth == 0 ? other : greater(at, best, other);
    }
  }
  return best;
}

LowerFunction adaptive_max_pool(int64_t rank) {
  return [rank](Lowering& at) {
    const Hlo x = at.tensor(0);
    const Dims out = at.sizes();
    const Hlo zeros = at.hlo.constant(0, x.dtype, out);
    if (zeros.numel() == 0) {
      at.give(0, zeros);
      return at.give(1, zeros);
    }
    if (const auto pool = even_pool(x.sizes, out, rank)) return give_greatest(at, x, *pool);
    const Greatest best = greatest_of_parts(at, x, rank, out);
    at.give(0, best.value);
    at.give(1, best.place);
  };
}

LowerFunction adaptive_max_pool_backward(int64_t rank) {
  return [rank](Lowering& at) {
    const Hlo grad = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Hlo places = at.hlo.convert(at.tensor(2), at::kInt);
    const Dims sizes = at.sizes();
    const auto pool = even_pool(sizes, grad.sizes, rank);
    at.give(pool && grad.numel() > 0 ? sum_by_places(at, grad, places, *pool, sizes)
                                     : scattered_to(at, "add", grad, places, rank, sizes));
  };
}

LowerFunction max_unpool(int64_t rank) {
  return [rank](Lowering& at) {
    at.give(scattered_to(at, "", at.tensor(0), at.tensor(1), rank, at.sizes()));
  };
}

}  // namespace

void add_max_pools(LoweringTable& table) {
  table["aten::max_pool2d_with_indices"] = max_pool(2);
  table["aten::max_pool3d_with_indices"] = max_pool(3);
  table["aten::max_pool2d_with_indices_backward"] = max_pool_backward(2);
  table["aten::max_pool3d_with_indices_backward"] = max_pool_backward(3);
  table["aten::adaptive_max_pool2d"] = adaptive_max_pool(2);
  table["aten::adaptive_max_pool3d"] = adaptive_max_pool(3);
  table["aten::adaptive_max_pool2d_backward"] = adaptive_max_pool_backward(2);
  table["aten::adaptive_max_pool3d_backward"] = adaptive_max_pool_backward(3);
  table["aten::max_unpool2d"] = max_unpool(2);
  table["aten::max_unpool3d"] = max_unpool(3);
}

}  // namespace levin::xla
