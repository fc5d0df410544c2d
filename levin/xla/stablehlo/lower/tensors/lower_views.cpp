// Views as copies: a program's values have no memory of their own that others could look at.
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <numeric>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

void lower_reshape(Lowering& at) { at.give(at.hlo.reshape(at.tensor(0), at.sizes())); }

void lower_transpose(Lowering& at) {
  const Hlo x = at.tensor(0);
  Dims permutation(x.sizes.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  if (x.rank() > 0) std::swap(permutation[at.dim(1, x.rank())], permutation[at.dim(2, x.rank())]);
  at.give(at.hlo.transpose(x, permutation));
}

void lower_t(Lowering& at) {
  const Hlo x = at.tensor(0);
  at.give(x.rank() < 2 ? x : at.hlo.transpose(x, {1, 0}));
}

/// Argument 1 as dimensions from 0 on, in the order given.
Dims named_dims(Lowering& at, int64_t rank) {
  Dims dims = at.list(1);
  for (int64_t& dim : dims) dim = at::maybe_wrap_dim(dim, rank);
  return dims;
}

void lower_permute(Lowering& at) {
  const Hlo x = at.tensor(0);
  at.give(at.hlo.transpose(x, named_dims(at, x.rank())));
}

void lower_expand(Lowering& at) { at.give(at.hlo.expand(at.tensor(0), at.sizes())); }

struct Range {
  int64_t start, end, step;
};

/// Follows Python's slices: bounds count from the end if negative, and stay within the tensor.
Range range_of(Lowering& at, int64_t size, size_t first) {
  const auto bound = [size](int64_t place) {
    return std::clamp<int64_t>(place < 0 ? place + size : place, 0, size);
  };
  const int64_t start = bound(at.integer(first, 0));
  return {start, std::max(start, bound(at.integer(first + 1, size))), at.integer(first + 2, 1)};
}

Hlo sliced(Lowering& at, const Hlo& x, int64_t dim, const Range& range) {
  Dims start(x.sizes.size(), 0);
  Dims limit = x.sizes;
  Dims stride(x.sizes.size(), 1);
  start[dim] = range.start;
  limit[dim] = range.end;
  stride[dim] = range.step;
  return at.hlo.slice(x, start, limit, stride);
}

void lower_slice(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t dim = at.dim(1, x.rank());
  at.give(sliced(at, x, dim, range_of(at, x.sizes[dim], 2)));
}

void lower_select(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t dim = at.dim(1, x.rank());
  const int64_t index = at::maybe_wrap_dim(at.integer(2), x.sizes[dim]);
  at.give(at.hlo.reshape(sliced(at, x, dim, {index, index + 1, 1}), at.sizes()));
}

/// Results that lie one after the other in a dimension.
void lower_split(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t dim = at.dim(2, x.rank());
  int64_t start = 0;
  for (size_t i = 0; i < at.node.outputs().size(); ++i) {
    const int64_t end = start + at.sizes(i)[dim];
    at.give(sliced(at, x, dim, {start, end, 1}));
    start = end;
  }
}

void lower_unbind(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t dim = at.dim(1, x.rank());
  for (int64_t i = 0; i < x.sizes[dim]; ++i) {
    at.give(at.hlo.reshape(sliced(at, x, dim, {i, i + 1, 1}), at.sizes(i)));
  }
}

/// Tells for each element of x whether its index along the dim lies in the range.
Hlo is_in(Lowering& at, const Hlo& x, int64_t dim, const Range& range) {
  const Hlo place = at.hlo.iota(at::kInt, x.sizes, dim);
  const auto number = [&](int64_t value) { return at.like(value, place); };
  Hlo inside = at.hlo.binary("and", at.hlo.compare("GE", place, number(range.start)),
                             at.hlo.compare("LT", place, number(range.end)));
  if (range.step == 1) return inside;
  const Hlo rest = at.hlo.binary("remainder", at.hlo.binary("subtract", place, number(range.start)),
                                 number(range.step));
  return at.hlo.binary("and", inside, at.hlo.compare("EQ", rest, number(0)));
}

/// x with the part put into the range of a dimension: the part is padded to x's sizes, and a mask
/// chooses.
Hlo scattered(Lowering& at, const Hlo& x, const Hlo& part, int64_t dim, const Range& range) {
  if (part.sizes == x.sizes) return part;
  if (part.numel() == 0) return x;
  Dims low(x.sizes.size(), 0);
  Dims high(x.sizes.size(), 0);
  Dims interior(x.sizes.size(), 0);
  low[dim] = range.start;
  interior[dim] = range.step - 1;
  const int64_t length = (part.sizes[dim] - 1) * range.step + 1;
  high[dim] = x.sizes[dim] - range.start - length;
  const Hlo padded = at.hlo.pad(part, at.hlo.constant(0, x.dtype), low, high, interior);
  return at.hlo.select(is_in(at, x, dim, range), padded, x);
}

void lower_slice_scatter(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t dim = at.dim(2, x.rank());
  at.give(scattered(at, x, at.tensor(1, x.dtype), dim, range_of(at, x.sizes[dim], 3)));
}

void lower_select_scatter(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t dim = at.dim(2, x.rank());
  const int64_t index = at::maybe_wrap_dim(at.integer(3), x.sizes[dim]);
  Dims sizes = x.sizes;
  sizes[dim] = 1;
  const Hlo part = at.hlo.reshape(at.tensor(1, x.dtype), sizes);
  at.give(scattered(at, x, part, dim, {index, index + 1, 1}));
}

/// The gradients of slice and select: zeros but for a part. Their argument 1 is x's sizes.
void lower_slice_backward(Lowering& at) {
  const Hlo part = at.tensor(0);
  const Hlo zeros = at.hlo.constant(0, part.dtype, at.sizes());
  const int64_t dim = at.dim(2, zeros.rank());
  at.give(scattered(at, zeros, part, dim, range_of(at, zeros.sizes[dim], 3)));
}

void lower_select_backward(Lowering& at) {
  const Hlo part = at.tensor(0);
  const Hlo zeros = at.hlo.constant(0, part.dtype, at.sizes());
  const int64_t dim = at.dim(2, zeros.rank());
  const int64_t index = at::maybe_wrap_dim(at.integer(3), zeros.sizes[dim]);
  Dims sizes = zeros.sizes;
  sizes[dim] = 1;
  at.give(scattered(at, zeros, at.hlo.reshape(part, sizes), dim, {index, index + 1, 1}));
}

void lower_cat(Lowering& at) {
  std::vector<Hlo> parts;
  for (const Hlo& part : at.tensors(0)) {
    if (part.rank() == 1 && part.numel() == 0 && at.sizes().size() != 1) continue;
    parts.push_back(at.hlo.convert(part, at.dtype()));
  }
  at.give(at.hlo.concatenate(parts, at.dim(1, parts.front().rank())));
}

void lower_stack(Lowering& at) {
  std::vector<Hlo> parts;
  const int64_t dim = at.dim(1, static_cast<int64_t>(at.sizes().size()));
  for (const Hlo& part : at.tensors(0)) {
    Dims sizes = part.sizes;
    sizes.insert(sizes.begin() + dim, 1);
    parts.push_back(at.hlo.reshape(at.hlo.convert(part, at.dtype()), sizes));
  }
  at.give(at.hlo.concatenate(parts, dim));
}

void lower_flip(Lowering& at) {
  const Hlo x = at.tensor(0);
  at.give(at.hlo.reverse(x, named_dims(at, x.rank())));
}

void lower_view_dtype(Lowering& at) { at.give(at.hlo.bitcast(at.tensor(0), at.dtype())); }

/// Negative sizes crop.
void lower_constant_pad(Lowering& at) {
  const Hlo x = at.tensor(0);
  const Dims given = at.list(1);
  Dims low(x.sizes.size(), 0);
  Dims high(x.sizes.size(), 0);
  for (size_t i = 0; i < given.size() / 2; ++i) {
    low[x.sizes.size() - 1 - i] = given[2 * i];
    high[x.sizes.size() - 1 - i] = given[2 * i + 1];
  }
  const Hlo value = at.scalar(2, x.dtype);
  at.give(at.hlo.pad(x, value, low, high, Dims(x.sizes.size(), 0)));
}

}  // namespace

void add_views(LoweringTable& table) {
  for (const std::string_view name :
       {"aten::view", "aten::reshape", "aten::_unsafe_view", "aten::_reshape_alias",
        "aten::unsqueeze", "aten::squeeze", "aten::squeeze.dim", "aten::squeeze.dims",
        "aten::alias", "aten::detach", "aten::_reshape_copy", "aten::view_copy"}) {
    table[name] = lower_reshape;
  }
  table["aten::transpose.int"] = lower_transpose;
  table["aten::t"] = lower_t;
  table["aten::permute"] = lower_permute;
  table["aten::expand"] = lower_expand;
  table["aten::slice.Tensor"] = lower_slice;
  table["aten::select.int"] = lower_select;
  table["aten::split.Tensor"] = table["aten::split_with_sizes"] = lower_split;
  table["aten::unbind.int"] = lower_unbind;
  table["aten::slice_scatter"] = lower_slice_scatter;
  table["aten::select_scatter"] = lower_select_scatter;
  table["aten::slice_backward"] = lower_slice_backward;
  table["aten::select_backward"] = lower_select_backward;
  table["aten::cat"] = lower_cat;
  table["aten::stack"] = lower_stack;
  table["aten::flip"] = lower_flip;
  table["aten::view.dtype"] = lower_view_dtype;
  table["aten::constant_pad_nd"] = lower_constant_pad;
}

}  // namespace levin::xla
