// Diagonals, windows over a dimension, repeats and rotations: slices and pads, no gathers.
#include <ATen/WrapDimUtils.h>

#include <optional>

#include "levin/xla/stablehlo/along.h"
#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

/// A diagonal as a slice of its matrix, which is seen as one row.
struct Diagonal {
  Dims order;  ///< dimensions of the whole, those of the matrix last
  Dims inverse;
  int64_t rows, columns, offset;

  int64_t start() const { return offset >= 0 ? offset : -offset * columns; }
  int64_t stride() const { return columns + 1; }
};

/// Arguments from `first` on: offset, dim1, dim2.
Diagonal diagonal_of(Lowering& at, const Dims& whole, size_t first) {
  const auto rank = static_cast<int64_t>(whole.size());
  const int64_t row = at.dim(first + 1, rank);
  const int64_t column = at.dim(first + 2, rank);
  Diagonal diagonal{.order = {},
                    .inverse = Dims(whole.size()),
                    .rows = whole[row],
                    .columns = whole[column],
                    .offset = at.integer(first)};
  for (int64_t i = 0; i < rank; ++i) {
    if (i != row && i != column) diagonal.order.push_back(i);
  }
  diagonal.order.push_back(row);
  diagonal.order.push_back(column);
  for (size_t i = 0; i < whole.size(); ++i) {
    diagonal.inverse[diagonal.order[i]] = static_cast<int64_t>(i);
  }
  return diagonal;
}

/// self, offset, dim1, dim2
void lower_diagonal(Lowering& at) {
  const Hlo x = at.tensor(0);
  const Diagonal diagonal = diagonal_of(at, x.sizes, 1);
  const Dims sizes = at.sizes();
  if (sizes.back() == 0) return at.give(at.hlo.constant(0, x.dtype, sizes));
  Dims flat = sizes;
  flat.back() = diagonal.rows * diagonal.columns;
  const Hlo row = at.hlo.reshape(at.hlo.transpose(x, diagonal.order), flat);
  Dims start(flat.size(), 0);
  Dims stride(flat.size(), 1);
  start.back() = diagonal.start();
  stride.back() = diagonal.stride();
  flat.back() = start.back() + (sizes.back() - 1) * stride.back() + 1;
  at.give(at.hlo.slice(row, start, flat, stride));
}

/// Zeros but for the diagonal.
Hlo on_diagonal(Lowering& at, const Hlo& part, const Diagonal& diagonal, const Dims& whole) {
  if (part.numel() == 0) return at.hlo.constant(0, part.dtype, whole);
  Dims low(part.sizes.size(), 0);
  Dims high = low;
  Dims interior = low;
  low.back() = diagonal.start();
  interior.back() = diagonal.stride() - 1;
  const int64_t end = low.back() + (part.sizes.back() - 1) * diagonal.stride() + 1;
  high.back() = diagonal.rows * diagonal.columns - end;
  const Hlo row = at.hlo.pad(part, at.hlo.constant(0, part.dtype), low, high, interior);
  Dims sizes(part.sizes.begin(), part.sizes.end() - 1);
  sizes.push_back(diagonal.rows);
  sizes.push_back(diagonal.columns);
  return at.hlo.transpose(at.hlo.reshape(row, sizes), diagonal.inverse);
}

/// self, src, offset, dim1, dim2
void lower_diagonal_scatter(Lowering& at) {
  const Hlo x = at.tensor(0);
  const Diagonal diagonal = diagonal_of(at, x.sizes, 2);
  const Hlo part = at.tensor(1, x.dtype);
  const Hlo placed = on_diagonal(at, part, diagonal, x.sizes);
  const size_t rank = x.sizes.size();
  const Term row(at.hlo, at.hlo.iota(at::kLong, x.sizes, diagonal.order[rank - 2]));
  const Term column(at.hlo, at.hlo.iota(at::kLong, x.sizes, diagonal.order[rank - 1]));
  at.give(at.hlo.select(same(column - row, static_cast<double>(diagonal.offset)), placed, x));
}

/// self, offset, dim1, dim2: a matrix of each last row.
void lower_diag_embed(Lowering& at) {
  const Dims whole = at.sizes();
  at.give(on_diagonal(at, at.tensor(0), diagonal_of(at, whole, 1), whole));
}

void lower_trace(Lowering& at) {
  const Term x(at.hlo, at.tensor(0, Lowering::compute_dtype(at.dtype())));
  const Term row(at.hlo, at.hlo.iota(at::kInt, x.sizes(), 0));
  const Term column(at.hlo, at.hlo.iota(at::kInt, x.sizes(), 1));
  at.give(at.sum(where(same(row, column), x, 0), {0, 1}, /*keepdim=*/false));
}

/// grad, input_sizes, offset, dim1, dim2
void lower_diagonal_backward(Lowering& at) {
  const Dims whole = at.sizes();
  at.give(on_diagonal(at, at.tensor(0), diagonal_of(at, whole, 2), whole));
}

constexpr int64_t kMostSlices = 64;  // longer windows are gathered, and scattered back

/// Returns the places of each window's elements: [windows, size].
Hlo window_places(Lowering& at, int64_t windows, int64_t size, int64_t step) {
  const Dims sizes = {windows, size};
  const Term start(at.hlo, at.hlo.iota(at::kInt, sizes, 0));
  const Term inside(at.hlo, at.hlo.iota(at::kInt, sizes, 1));
  return start * static_cast<double>(step) + inside;
}

/// The k-th element of each window.
Hlo slice_of_windows(Lowering& at, const Hlo& x, int64_t dim, int64_t k, int64_t windows,
                     int64_t step) {
  return slice_along(at.hlo, x, dim, k, k + (windows - 1) * step + 1, step);
}

/// self, dimension, size, step: windows of a dimension, their elements in a last one.
void lower_windows(Lowering& at) {
  const Hlo x = at.tensor(0);
  if (x.rank() == 0) return at.give(at.hlo.reshape(x, at.sizes()));
  const int64_t dim = at.dim(1, x.rank());
  const int64_t size = at.integer(2);
  const int64_t step = at.integer(3);
  const int64_t windows = at.sizes()[dim];
  if (x.numel() == 0 || size == 0) return at.give(at.hlo.constant(0, x.dtype));
  if (size <= kMostSlices) {
    std::vector<Hlo> parts;
    for (int64_t k = 0; k < size; ++k) {
      Hlo part = slice_of_windows(at, x, dim, k, windows, step);
      Dims column = part.sizes;
      column.push_back(1);
      parts.push_back(at.hlo.reshape(part, column));
    }
    return at.give(at.hlo.concatenate(parts, x.rank()));
  }
  GatherDims dims{
      .collapsed = {dim}, .start_index_map = {dim}, .index_vector_dim = 2, .slice_sizes = x.sizes};
  dims.slice_sizes[dim] = 1;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) dims.offset.push_back(i);
  }
  at.give(at.hlo.gather(x, window_places(at, windows, size, step), dims, at.sizes()));
}

/// grad, input_sizes, dim, size, step: windows that overlap are added.
void lower_windows_backward(Lowering& at) {
  const Dims whole = at.sizes();
  const Hlo grad = at.tensor(0, Lowering::compute_dtype(at.dtype()));
  if (whole.empty() || grad.numel() == 0) {
    const bool is_one = whole.empty() && grad.numel() == 1;
    return at.give(is_one ? at.hlo.reshape(grad, {}) : at.hlo.constant(0, grad.dtype, whole));
  }
  const int64_t dim = at.dim(2, static_cast<int64_t>(whole.size()));
  const int64_t size = at.integer(3);
  const int64_t step = at.integer(4);
  const int64_t windows = grad.sizes[dim];
  if (size > kMostSlices) {
    ScatterDims dims{
        .inserted_window = {dim}, .scatter_dims_to_operand = {dim}, .index_vector_dim = 2};
    for (int64_t i = 0; i < static_cast<int64_t>(whole.size()); ++i) {
      if (i != dim) dims.update_window.push_back(i);
    }
    const Hlo zeros = at.hlo.constant(0, grad.dtype, whole);
    return at.give(
        at.hlo.scatter("add", zeros, window_places(at, windows, size, step), grad, dims));
  }
  std::optional<Hlo> total;
  for (int64_t k = 0; k < size; ++k) {
    Dims start(grad.sizes.size(), 0);
    Dims limit = grad.sizes;
    start.back() = k;
    limit.back() = k + 1;
    Dims sizes(grad.sizes.begin(), grad.sizes.end() - 1);
    const Hlo part = at.hlo.reshape(at.hlo.slice(grad, start, limit, Dims(limit.size(), 1)), sizes);
    Dims low(sizes.size(), 0);
    Dims high = low;
    Dims interior = low;
    low[dim] = k;
    interior[dim] = step - 1;
    high[dim] = whole[dim] - k - ((windows - 1) * step + 1);
    const Hlo placed = at.hlo.pad(part, at.hlo.constant(0, grad.dtype), low, high, interior);
    total = total ? at.hlo.binary("add", *total, placed) : placed;
  }
  at.give(*total);
}

Hlo rolled(Lowering& at, const Hlo& x, int64_t dim, int64_t shift) {
  const int64_t size = x.sizes[dim];
  if (size == 0) return x;
  const int64_t split = ((-shift % size) + size) % size;
  if (split == 0) return x;
  const auto part = [&](int64_t from, int64_t to) {
    Dims start(x.sizes.size(), 0);
    Dims limit = x.sizes;
    start[dim] = from;
    limit[dim] = to;
    return at.hlo.slice(x, start, limit, Dims(x.sizes.size(), 1));
  };
  return at.hlo.concatenate({part(split, size), part(0, split)}, dim);
}

/// self, shifts, dims: without dims as if self were one row.
void lower_roll(Lowering& at) {
  Hlo x = at.tensor(0);
  const Dims shifts = at.list(1);
  const Dims dims = at.list(2);
  if (dims.empty()) {
    x = rolled(at, at.hlo.reshape(x, {x.numel()}), 0, shifts.front());
    return at.give(at.hlo.reshape(x, at.sizes()));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    x = rolled(at, x, at::maybe_wrap_dim(dims[i], x.rank()), shifts[i]);
  }
  at.give(x);
}

/// self, repeats
void lower_repeat(Lowering& at) {
  const Hlo x = at.tensor(0);
  const Dims repeats = at.list(1);
  const size_t front = repeats.size() - x.sizes.size();
  Dims sizes;
  Dims dims;
  for (size_t i = 0; i < repeats.size(); ++i) {
    sizes.push_back(repeats[i]);
    if (i < front) continue;
    dims.push_back(static_cast<int64_t>(sizes.size()));
    sizes.push_back(x.sizes[i - front]);
  }
  at.give(at.hlo.reshape(at.hlo.broadcast_in_dim(x, sizes, dims), at.sizes()));
}

}  // namespace

void add_windows(LoweringTable& table) {
  table["aten::diagonal"] = lower_diagonal;
  table["aten::diag_embed"] = lower_diag_embed;
  table["aten::trace"] = lower_trace;
  table["aten::diagonal_scatter"] = lower_diagonal_scatter;
  table["aten::diagonal_backward"] = lower_diagonal_backward;
  table["aten::unfold"] = lower_windows;
  table["aten::unfold_backward"] = lower_windows_backward;
  table["aten::roll"] = lower_roll;
  table["aten::repeat"] = lower_repeat;
}

}  // namespace levin::xla
