// Sorting and what is read off a sorted row. A NaN is greater than all numbers, and equal elements
// stay in their order.
#include <limits>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

struct Sorted {
  Hlo values, places;
};

/// A sort key that orders like ATen if its bits are compared: one zero, one NaN.
Hlo key_of(Lowering& at, const Hlo& x) {
  if (x.dtype == at::kBool) return at.hlo.convert(x, at::kInt);
  if (!at::isFloatingType(x.dtype)) return x;
  const Term value(at.hlo, x);
  const Term plain = where(same(value, 0), 0, value);
  return where(is_nan(value), std::numeric_limits<double>::quiet_NaN(), plain);
}

Sorted sorted_of(Lowering& at, const Hlo& x, int64_t dim, bool descending) {
  const Hlo place = at.hlo.iota(at::kInt, x.sizes, dim);
  const std::vector<Hlo> sorted = at.hlo.sort({key_of(at, x), x, place}, dim, descending);
  return {sorted[1], at.hlo.convert(sorted[2], at::kLong)};
}

/// A tensor without dimensions as one of one.
Hlo as_row(Lowering& at, const Hlo& x) { return x.rank() == 0 ? at.hlo.reshape(x, {1}) : x; }

Hlo part_of(Lowering& at, const Hlo& x, int64_t dim, int64_t start, int64_t limit) {
  Dims from(x.sizes.size(), 0);
  Dims to = x.sizes;
  from[dim] = start;
  to[dim] = limit;
  return at.hlo.slice(x, from, to, Dims(x.sizes.size(), 1));
}

void give_sorted(Lowering& at, const Sorted& sorted) {
  at.give(at.hlo.reshape(sorted.values, at.sizes(0)));
  at.give(at.hlo.reshape(sorted.places, at.sizes(1)));
}

/// sort(self, dim, descending); sort.stable has `stable` before them.
LowerFunction sort_from(size_t dim_argument) {
  return [dim_argument](Lowering& at) {
    const Hlo x = as_row(at, at.tensor(0));
    const int64_t dim = at.dim(dim_argument, x.rank());
    give_sorted(at, sorted_of(at, x, dim, at.flag(dim_argument + 1)));
  };
}

/// self, k, dim, largest, sorted
void lower_topk(Lowering& at) {
  const Hlo x = as_row(at, at.tensor(0));
  const int64_t dim = at.dim(2, x.rank());
  const Sorted sorted = sorted_of(at, x, dim, at.flag(3));
  const int64_t k = at.integer(1);
  give_sorted(at, {part_of(at, sorted.values, dim, 0, k), part_of(at, sorted.places, dim, 0, k)});
}

/// self, k, dim, keepdim
void lower_kthvalue(Lowering& at) {
  const Hlo x = as_row(at, at.tensor(0));
  const int64_t dim = at.dim(2, x.rank());
  const Sorted sorted = sorted_of(at, x, dim, /*descending=*/false);
  const int64_t k = at.integer(1);
  give_sorted(
      at, {part_of(at, sorted.values, dim, k - 1, k), part_of(at, sorted.places, dim, k - 1, k)});
}

/// The lower one of two in the middle. A NaN is the median of its row, or is left out.
Sorted median_of(Lowering& at, const Hlo& x, int64_t dim, bool leaves_nan_out) {
  const Sorted sorted = sorted_of(at, x, dim, /*descending=*/false);
  const int64_t size = x.sizes[dim];
  const int64_t middle = (size - 1) / 2;
  if (!at::isFloatingType(x.dtype)) {
    return {part_of(at, sorted.values, dim, middle, middle + 1),
            part_of(at, sorted.places, dim, middle, middle + 1)};
  }
  const Term is_none = is_nan(Term(at.hlo, sorted.values));
  const Term nans(at.hlo, at.sum(is_none.as(at::kLong), {dim}, /*keepdim=*/true));
  const Term numbers = static_cast<double>(size) - nans;
  // The first NaN comes after all numbers.
  const Term wanted = leaves_nan_out ? (maximum(numbers - 1, 0) / 2)
                                     : where(nans > 0, numbers, static_cast<double>(middle));
  const Term place(at.hlo, at.hlo.iota(at::kLong, x.sizes, dim));
  const Term is_it = same(place, wanted.expanded(x.sizes));
  const Term value = where(is_it, Term(at.hlo, sorted.values), 0);
  const Term index = where(is_it, Term(at.hlo, sorted.places), 0);
  return {at.sum(value, {dim}, /*keepdim=*/true), at.sum(index, {dim}, /*keepdim=*/true)};
}

LowerFunction median(bool leaves_nan_out, bool has_dim) {
  return [=](Lowering& at) {
    Hlo x = as_row(at, at.tensor(0));
    if (!has_dim) x = at.hlo.reshape(x, {x.numel()});
    const int64_t dim = has_dim ? at.dim(1, x.rank()) : 0;
    const Sorted found = median_of(at, x, dim, leaves_nan_out);
    at.give(at.hlo.reshape(found.values, at.sizes(0)));
    if (has_dim) at.give(at.hlo.reshape(found.places, at.sizes(1)));
  };
}

/// Returns for each value how many elements of sorted rows are less, or not greater with `right`. A
/// NaN comes after all. Rows [..., n] over values [..., m], or one row over all values.
Hlo places_among(Lowering& at, const Hlo& rows, const Hlo& values, bool right) {
  Dims sizes = values.sizes;
  sizes.push_back(rows.sizes.back());
  Dims outer;
  for (int64_t i = 0; i < values.rank(); ++i) outer.push_back(i);
  const Hlo value = at.hlo.broadcast_in_dim(values, sizes, outer);
  Dims from = {values.rank()};
  if (rows.rank() > 1) {
    from.clear();
    for (int64_t i = 0; i + 1 < rows.rank(); ++i) from.push_back(i);
    from.push_back(values.rank());
  }
  const Hlo row = at.hlo.broadcast_in_dim(rows, sizes, from);
  const Hlo is_behind = at.hlo.compare(right ? "GT" : "GE", row, value);
  const Hlo before = at.hlo.convert(at.hlo.unary("not", is_behind), at::kLong);
  return at.sum(before, {values.rank()}, /*keepdim=*/false);
}

/// searchsorted(sorted_sequence, self, out_int32, right, side, sorter)
void lower_searchsorted(Lowering& at) {
  const at::ScalarType in = at.promoted({0, 1});
  const bool is_right = at.flag(3) || (at.has(4) && at.text(4) == "right");
  Hlo rows = at.tensor(0, in);
  if (at.has(5)) {  // rows in the order of the sorter
    const Hlo order = at.tensor(5, at::kLong);
    Dims sizes = rows.sizes;
    sizes.push_back(rows.sizes.back());
    Dims outer;
    for (int64_t i = 0; i + 1 < rows.rank(); ++i) outer.push_back(i);
    Dims whole = outer;
    whole.push_back(rows.rank());
    Dims own = outer;
    own.push_back(rows.rank() - 1);
    const Term is_it = same(Term(at.hlo, at.hlo.iota(at::kLong, sizes, rows.rank())),
                            Term(at.hlo, at.hlo.broadcast_in_dim(order, sizes, own)));
    const Term all(at.hlo, at.hlo.broadcast_in_dim(rows, sizes, whole));
    rows = at.sum(where(is_it, all, 0), {rows.rank()}, /*keepdim=*/false);
  }
  at.give(places_among(at, rows, at.hlo.expand(at.tensor(1, in), at.sizes()), is_right));
}

/// bucketize(self, boundaries, out_int32, right)
void lower_bucketize(Lowering& at) {
  const at::ScalarType in = at.promoted({0, 1});
  const Hlo values = at.hlo.expand(at.tensor(0, in), at.sizes());
  at.give(places_among(at, at.tensor(1, in), values, at.flag(3)));
}

}  // namespace

void add_sorting(LoweringTable& table) {
  table["aten::sort"] = sort_from(1);
  table["aten::sort.stable"] = sort_from(2);
  table["aten::topk"] = lower_topk;
  table["aten::kthvalue"] = lower_kthvalue;
  table["aten::median"] = median(false, false);
  table["aten::median.dim"] = median(false, true);
  table["aten::nanmedian"] = median(true, false);
  table["aten::nanmedian.dim"] = median(true, true);
  table["aten::searchsorted.Tensor"] = table["aten::searchsorted.Scalar"] = lower_searchsorted;
  table["aten::bucketize.Tensor"] = table["aten::bucketize.Scalar"] = lower_bucketize;
}

}  // namespace levin::xla
