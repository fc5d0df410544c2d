// Sums, means, norms, extremes, softmax.
#include <algorithm>
#include <limits>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

Hlo in_compute_dtype(Lowering& at, size_t index) {
  const Hlo x = at.tensor(index);
  return at.hlo.convert(x, Lowering::compute_dtype(x.dtype));
}

/// Returns the dimensions that argument 1 names, in the overloads that have one.
Dims reduced_dims(Lowering& at, int64_t rank, bool has_dims) {
  return has_dims ? at.dims(1, rank) : [&] {
    Dims all;
    for (int64_t i = 0; i < rank; ++i) all.push_back(i);
    return all;
  }();
}

int64_t count_of(const Hlo& x, const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= x.sizes[dim];
  return count;
}

/// The result's sizes say whether reduced dimensions were kept.
void give_reduced(Lowering& at, const Hlo& reduced, size_t result = 0) {
  at.give(result, at.hlo.reshape(reduced, at.sizes(result)));
}

LowerFunction sum(bool has_dims) {
  return [has_dims](Lowering& at) {
    const Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    give_reduced(at, at.sum(x, reduced_dims(at, x.rank(), has_dims), false));
  };
}

LowerFunction mean(bool has_dims) {
  return [has_dims](Lowering& at) {
    const Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Dims dims = reduced_dims(at, x.rank(), has_dims);
    const Hlo total = at.sum(x, dims, false);
    give_reduced(at, at.hlo.binary("divide", total, at.like(count_of(x, dims), total)));
  };
}

LowerFunction product(bool has_dim) {
  return [has_dim](Lowering& at) {
    const Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Dims dims = reduced_dims(at, x.rank(), has_dim);
    give_reduced(at, at.hlo.reduce("multiply", x, at.hlo.constant(1, x.dtype), dims));
  };
}

/// The greatest (least) element; a NaN where there is one, which XLA's own reduction on CPUs loses.
Hlo extreme_of(Lowering& at, std::string_view name, const Hlo& x, const Dims& dims) {
  const Hlo init = name == "maximum" ? at.hlo.lowest(x.dtype) : at.hlo.highest(x.dtype);
  const Hlo reduced = at.hlo.reduce(name, x, init, dims);
  if (!at::isFloatingType(x.dtype) || dims.empty()) return reduced;
  const Hlo is_nan =
      at.hlo.reduce("or", at.hlo.compare("NE", x, x), at.hlo.constant(false, at::kBool), dims);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return at.hlo.select(is_nan, at.like(nan, reduced), reduced);
}

LowerFunction extreme(std::string_view name) {
  return [name](Lowering& at) {
    const Hlo x = at.tensor(0);
    const bool has_dims = at.node.arguments().size() > 1;
    give_reduced(at, extreme_of(at, name, x, reduced_dims(at, x.rank(), has_dims)));
  };
}

/// NaNs count as 0. Arguments as sum's.
void lower_nansum(Lowering& at) {
  const Hlo given = at.tensor(0);
  const Hlo zero = at.like(0, given);
  const bool is_float = at::isFloatingType(given.dtype);
  const Hlo kept =
      is_float ? at.hlo.select(at.hlo.compare("EQ", given, given), given, zero) : given;
  const Hlo x = at.hlo.convert(kept, Lowering::compute_dtype(at.dtype()));
  give_reduced(at, at.sum(x, at.dims(1, x.rank()), false));
}

void lower_count_nonzero(Lowering& at) {
  const Hlo x = at.hlo.convert(at.tensor(0, at::kBool), at::kLong);
  give_reduced(at, at.sum(x, at.dims(1, x.rank()), false));
}

/// The first place of the greatest (least) element of each row; of a NaN where there is one.
Hlo place_of(Lowering& at, const Hlo& x, const Hlo& extreme, int64_t dim) {
  const Hlo kept = at.keep_dims(extreme, x, {dim});
  Hlo is_it = at.hlo.compare("EQ", x, at.hlo.expand(kept, x.sizes));
  if (at::isFloatingType(x.dtype)) {
    is_it = at.hlo.binary("or", is_it, at.hlo.compare("NE", x, x));
  }
  const Hlo place = at.hlo.iota(at::kLong, x.sizes, dim);
  const Hlo found = at.hlo.select(is_it, place, at.like(x.sizes[dim], place));
  return at.hlo.reduce("minimum", found, at.hlo.highest(at::kLong), {dim});
}

LowerFunction extreme_with_place(std::string_view name) {
  return [name](Lowering& at) {
    const Hlo x = at.tensor(0);
    const int64_t dim = x.rank() == 0 ? 0 : at.dim(1, x.rank());
    if (x.rank() == 0) {
      at.give(x);
      return at.give(at.hlo.constant(0, at::kLong));
    }
    const Hlo reduced = extreme_of(at, name, x, {dim});
    give_reduced(at, reduced, 0);
    give_reduced(at, place_of(at, x, reduced, dim), 1);
  };
}

LowerFunction place(std::string_view name) {
  return [name](Lowering& at) {
    Hlo x = at.tensor(0);
    if (!at.has(1) || x.rank() == 0) x = at.hlo.reshape(x, {x.numel()});
    const int64_t dim = at.has(1) && x.rank() > 0 ? at.dim(1, x.rank()) : 0;
    const Hlo init = name == "maximum" ? at.hlo.lowest(x.dtype) : at.hlo.highest(x.dtype);
    give_reduced(at, place_of(at, x, at.hlo.reduce(name, x, init, {dim}), dim));
  };
}

LowerFunction any_or_all(std::string_view name) {
  return [name](Lowering& at) {
    const Hlo x = at.tensor(0, at::kBool);
    const bool has_dims = at.node.arguments().size() > 1;
    const Hlo init = at.hlo.constant(name == "and", at::kBool);
    give_reduced(at, at.hlo.reduce(name, x, init, reduced_dims(at, x.rank(), has_dims)));
  };
}

struct Moments {
  Hlo mean, variance;  ///< reduced
};

Moments moments_of(Lowering& at, const Hlo& x, const Dims& dims, double correction) {
  const auto count = static_cast<double>(count_of(x, dims));
  const Hlo total = at.sum(x, dims, false);
  const Hlo mean = at.hlo.binary("divide", total, at.like(count, total));
  const Hlo away =
      at.hlo.binary("subtract", x, at.hlo.expand(at.keep_dims(mean, x, dims), x.sizes));
  const Hlo squares = at.sum(at.hlo.binary("multiply", away, away), dims, false);
  const double divisor = std::max(0.0, count - correction);
  return {mean, at.hlo.binary("divide", squares, at.like(divisor, squares))};
}

/// var, std, var_mean and std_mean with dim=, correction=, keepdim=
LowerFunction spread_of(bool is_root, bool with_mean) {
  return [=](Lowering& at) {
    const Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const double correction = at.has(2) ? at.number(2) : 1.0;
    const Moments moments = moments_of(at, x, at.dims(1, x.rank()), correction);
    give_reduced(at, is_root ? at.hlo.unary("sqrt", moments.variance) : moments.variance, 0);
    if (with_mean) give_reduced(at, moments.mean, 1);
  };
}

Hlo powered(Lowering& at, const Hlo& x, double exponent) {
  if (exponent == 1) return x;
  if (exponent == 2) return at.hlo.binary("multiply", x, x);
  return at.hlo.binary("power", x, at.like(exponent, x));
}

/// The p-norm: argument 1 is p, 2 the dimensions.
void lower_norm(Lowering& at) {
  const Hlo x = at.hlo.unary("abs", at.tensor(0, Lowering::compute_dtype(at.dtype())));
  const double p = at.has(1) ? at.number(1) : 2.0;
  const Dims dims =
      at.node.arguments().size() > 2 ? at.dims(2, x.rank()) : reduced_dims(at, x.rank(), false);
  if (p == 0) {
    const Hlo is_other = at.hlo.compare("NE", x, at.like(0, x));
    return give_reduced(at, at.sum(at.hlo.convert(is_other, x.dtype), dims, false));
  }
  if (std::isinf(p)) {
    const bool is_most = p > 0;
    const Hlo init = at.hlo.constant(is_most ? 0.0 : p * -1, x.dtype);
    return give_reduced(at, at.hlo.reduce(is_most ? "maximum" : "minimum", x, init, dims));
  }
  const Hlo total = at.sum(powered(at, x, p), dims, false);
  give_reduced(at, p == 2 ? at.hlo.unary("sqrt", total) : powered(at, total, 1 / p));
}

void lower_softmax(Lowering& at) {
  const Hlo x = in_compute_dtype(at, 0);
  const Dims dims = x.rank() == 0 ? Dims{} : Dims{at.dim(1, x.rank())};
  const auto spread = [&](const Hlo& row) { return at.hlo.expand(row, x.sizes); };
  const Hlo shifted = at.hlo.binary("subtract", x, spread(at.maximum(x, dims, true)));
  const Hlo powers = at.hlo.unary("exponential", shifted);
  at.give(at.hlo.binary("divide", powers, spread(at.sum(powers, dims, true))));
}

void lower_log_softmax(Lowering& at) {
  const Hlo x = in_compute_dtype(at, 0);
  const Dims dims = x.rank() == 0 ? Dims{} : Dims{at.dim(1, x.rank())};
  const auto spread = [&](const Hlo& row) { return at.hlo.expand(row, x.sizes); };
  const Hlo shifted = at.hlo.binary("subtract", x, spread(at.maximum(x, dims, true)));
  const Hlo total = at.sum(at.hlo.unary("exponential", shifted), dims, true);
  at.give(at.hlo.binary("subtract", shifted, spread(at.hlo.unary("log", total))));
}

/// (grad - sum(grad * y)) * y
void lower_softmax_backward(Lowering& at) {
  const Hlo grad = in_compute_dtype(at, 0);
  const Hlo y = in_compute_dtype(at, 1);
  const Dims dims = y.rank() == 0 ? Dims{} : Dims{at.dim(2, y.rank())};
  const Hlo product = at.hlo.binary("multiply", grad, y);
  const Hlo total = at.hlo.expand(at.sum(product, dims, true), y.sizes);
  at.give(at.hlo.binary("subtract", product, at.hlo.binary("multiply", y, total)));
}

/// grad - exp(y) * sum(grad)
void lower_log_softmax_backward(Lowering& at) {
  const Hlo grad = in_compute_dtype(at, 0);
  const Hlo y = in_compute_dtype(at, 1);
  const Dims dims = y.rank() == 0 ? Dims{} : Dims{at.dim(2, y.rank())};
  const Hlo total = at.hlo.expand(at.sum(grad, dims, true), y.sizes);
  const Hlo powers = at.hlo.unary("exponential", y);
  at.give(at.hlo.binary("subtract", grad, at.hlo.binary("multiply", powers, total)));
}

/// Running sums by a window over all that came before.
void lower_cumsum(Lowering& at) {
  const Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
  if (x.rank() == 0 || x.numel() == 0) return at.give(x);
  const int64_t dim = at.dim(1, x.rank());
  const Dims ones(x.sizes.size(), 1);
  const Dims zeros(x.sizes.size(), 0);
  Window window{ones, ones, ones, ones, zeros, zeros};
  window.sizes[dim] = x.sizes[dim];
  window.pad_low[dim] = x.sizes[dim] - 1;
  at.give(at.hlo.reduce_window("add", x, at.hlo.constant(0, x.dtype), window));
}

}  // namespace

void add_reductions(LoweringTable& table) {
  table["aten::sum"] = sum(false);
  table["aten::sum.dim_IntList"] = sum(true);
  table["aten::nansum"] = lower_nansum;
  table["aten::count_nonzero.dim_IntList"] = lower_count_nonzero;
  table["aten::mean"] = mean(false);
  table["aten::mean.dim"] = mean(true);
  table["aten::prod"] = product(false);
  table["aten::prod.dim_int"] = product(true);
  table["aten::amax"] = table["aten::max"] = extreme("maximum");
  table["aten::amin"] = table["aten::min"] = extreme("minimum");
  table["aten::max.dim"] = extreme_with_place("maximum");
  table["aten::min.dim"] = extreme_with_place("minimum");
  table["aten::argmax"] = place("maximum");
  table["aten::argmin"] = place("minimum");
  table["aten::any"] = table["aten::any.dim"] = table["aten::any.dims"] = any_or_all("or");
  table["aten::all"] = table["aten::all.dim"] = table["aten::all.dims"] = any_or_all("and");
  table["aten::var.correction"] = spread_of(false, false);
  table["aten::std.correction"] = spread_of(true, false);
  table["aten::var_mean.correction"] = spread_of(false, true);
  table["aten::std_mean.correction"] = spread_of(true, true);
  table["aten::linalg_vector_norm"] = lower_norm;
  table["aten::norm.Scalar"] = table["aten::norm.ScalarOpt_dim"] = lower_norm;
  table["aten::norm.ScalarOpt_dim_dtype"] = lower_norm;
  table["aten::_softmax"] = lower_softmax;
  table["aten::_log_softmax"] = lower_log_softmax;
  table["aten::_softmax_backward_data"] = lower_softmax_backward;
  table["aten::_log_softmax_backward_data"] = lower_log_softmax_backward;
  table["aten::cumsum"] = lower_cumsum;
}

}  // namespace levin::xla
