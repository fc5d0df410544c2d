// Batch, layer and group normalization, forward and backward.
#include <algorithm>
#include <numeric>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

Hlo times(Lowering& at, const Hlo& a, const Hlo& b) { return at.hlo.binary("multiply", a, b); }
Hlo minus(Lowering& at, const Hlo& a, const Hlo& b) { return at.hlo.binary("subtract", a, b); }
Hlo plus(Lowering& at, const Hlo& a, const Hlo& b) { return at.hlo.binary("add", a, b); }

Dims range(int64_t first, int64_t end) {
  Dims dims(std::max<int64_t>(0, end - first));
  std::iota(dims.begin(), dims.end(), first);
  return dims;
}

/// The dims of a normalization: the reduced dims, and the dims of its statistics and weights in the
/// input.
struct Norm {
  Dims reduced, statistics, weights;
};

struct Statistics {
  Hlo mean, inverse;  ///< of the statistics' sizes; inverse: 1 / deviation
};

Hlo mean_of(Lowering& at, const Hlo& x, const Dims& dims) {
  const Hlo total = at.sum(x, dims, false);
  const double count = total.numel() == 0
                           ? 0.0
                           : static_cast<double>(x.numel()) / static_cast<double>(total.numel());
  return at.hlo.binary("divide", total, at.like(count, total));
}

Hlo spread_over(Lowering& at, const Hlo& statistic, const Hlo& x, const Dims& dims) {
  return at.hlo.broadcast_in_dim(statistic, x.sizes, dims);
}

Hlo inverse_deviation(Lowering& at, const Hlo& variance, double eps) {
  return at.hlo.unary("rsqrt", plus(at, variance, at.like(eps, variance)));
}

struct Variance {
  Hlo mean, variance;
};

Variance moments_over(Lowering& at, const Hlo& x, const Norm& norm) {
  const Hlo mean = mean_of(at, x, norm.reduced);
  const Hlo away = minus(at, x, spread_over(at, mean, x, norm.statistics));
  return {mean, mean_of(at, times(at, away, away), norm.reduced)};
}

/// (x - mean) * inverse
Hlo normalized(Lowering& at, const Hlo& x, const Statistics& by, const Norm& norm) {
  return times(at, minus(at, x, spread_over(at, by.mean, x, norm.statistics)),
               spread_over(at, by.inverse, x, norm.statistics));
}

/// Returns x * weight + bias; weight or bias may be missing.
Hlo with_weights(Lowering& at, Hlo x, size_t weight, size_t bias, const Norm& norm) {
  if (at.has(weight)) {
    x = times(at, x, spread_over(at, at.tensor(weight, x.dtype), x, norm.weights));
  }
  if (at.has(bias)) x = plus(at, x, spread_over(at, at.tensor(bias, x.dtype), x, norm.weights));
  return x;
}

/// The gradient of a normalization by its own statistics: of g = grad * weight
/// (g - mean(g) - xhat * mean(g * xhat)) * inverse.
Hlo through_statistics(Lowering& at, const Hlo& grad, const Hlo& xhat, const Hlo& inverse,
                       const Norm& norm) {
  const auto spread = [&](const Hlo& value) {
    return spread_over(at, value, grad, norm.statistics);
  };
  const Hlo along = mean_of(at, times(at, grad, xhat), norm.reduced);
  const Hlo rest = minus(at, minus(at, grad, spread(mean_of(at, grad, norm.reduced))),
                         times(at, xhat, spread(along)));
  return times(at, rest, spread(inverse));
}

Norm batch_norm_of(const Hlo& x) {
  Dims others = range(0, x.rank());
  others.erase(others.begin() + 1);
  return {.reduced = others, .statistics = {1}, .weights = {1}};
}

/// The places of a batch normalization's arguments, and its first written result.
struct BatchNormArguments {
  std::optional<size_t> running, training, momentum;
  size_t eps = 0;
  bool always_trains = false;
};

/// (1 - momentum) * running + momentum * now
Hlo moved(Lowering& at, size_t running, const Hlo& now, size_t momentum) {
  const Hlo old = at.tensor(running, now.dtype);
  const Hlo rate = at.spread(at.scalar(momentum, now.dtype), now);
  return plus(at, times(at, minus(at, at.like(1, rate), rate), old), times(at, rate, now));
}

/// The new values of running statistics: by the variance of a sample.
void give_running(Lowering& at, const BatchNormArguments& where, const Variance& now, double count,
                  size_t first) {
  const size_t mean = *where.running;
  if (at.has(mean)) at.give(first++, moved(at, mean, now.mean, *where.momentum));
  if (!at.has(mean + 1)) return;
  const Hlo unbiased =
      times(at, now.variance, at.like(count / std::max(count - 1, 1.0), now.variance));
  at.give(first, moved(at, mean + 1, unbiased, *where.momentum));
}

LowerFunction batch_norm(const BatchNormArguments& where, size_t num_results = 3) {
  return [=](Lowering& at) {
    const Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Norm norm = batch_norm_of(x);
    const bool trains = where.always_trains || (where.training && at.flag(*where.training));
    const double eps = at.number(where.eps);
    if (trains) {
      const Variance now = moments_over(at, x, norm);
      const Statistics by = {now.mean, inverse_deviation(at, now.variance, eps)};
      at.give(0, with_weights(at, normalized(at, x, by, norm), 1, 2, norm));
      at.give(1, by.mean);
      at.give(2, by.inverse);
      const double count =
          static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, x.sizes[1]));
      if (where.running) give_running(at, where, now, count, num_results);
    } else {
      const size_t mean = *where.running;
      const Statistics by = {at.tensor(mean, x.dtype),
                             inverse_deviation(at, at.tensor(mean + 1, x.dtype), eps)};
      at.give(0, with_weights(at, normalized(at, x, by, norm), 1, 2, norm));
      // Unwanted statistics have no elements; the running ones stay unchanged.
      for (const size_t i : {1, 2}) {
        if (at.wants(i)) at.give(i, at.hlo.constant(0, x.dtype, at.sizes(i)));
      }
      at.give(num_results, at.tensor(mean));
      at.give(num_results + 1, at.tensor(mean + 1));
    }
    if (num_results == 4) at.give(3, at.hlo.constant(0, at::kByte, at.sizes(3)));
  };
}

void lower_batch_norm_backward(Lowering& at) {
  const Hlo grad = at.tensor(0, Lowering::compute_dtype(at.tensor(0).dtype));
  const Hlo x = at.tensor(1, grad.dtype);
  const Norm norm = batch_norm_of(x);
  const bool trains = at.flag(7);
  const Statistics by =
      trains ? Statistics{at.tensor(5, x.dtype), at.tensor(6, x.dtype)}
             : Statistics{at.tensor(3, x.dtype),
                          inverse_deviation(at, at.tensor(4, x.dtype), at.number(8))};
  const Hlo xhat = normalized(at, x, by, norm);
  Hlo weighted = grad;
  if (at.has(2)) {
    weighted = times(at, grad, spread_over(at, at.tensor(2, grad.dtype), grad, norm.weights));
  }
  if (trains) {
    at.give(0, through_statistics(at, weighted, xhat, by.inverse, norm));
  } else {
    at.give(0, times(at, weighted, spread_over(at, by.inverse, x, norm.statistics)));
  }
  if (at.wants(1)) at.give(1, at.sum(times(at, grad, xhat), norm.reduced, false));
  if (at.wants(2)) at.give(2, at.sum(grad, norm.reduced, false));
}

/// Over the last dimensions, as many as the shape has.
Norm layer_norm_of(const Hlo& x, const Dims& shape) {
  const int64_t first = x.rank() - static_cast<int64_t>(shape.size());
  return {.reduced = range(first, x.rank()),
          .statistics = range(0, first),
          .weights = range(first, x.rank())};
}

void give_statistics(Lowering& at, const Statistics& by) {
  at.give(1, at.hlo.reshape(by.mean, at.sizes(1)));
  at.give(2, at.hlo.reshape(by.inverse, at.sizes(2)));
}

void lower_layer_norm(Lowering& at) {
  const Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
  const Norm norm = layer_norm_of(x, at.list(1));
  const Variance now = moments_over(at, x, norm);
  const Statistics by = {now.mean, inverse_deviation(at, now.variance, at.number(4))};
  at.give(0, with_weights(at, normalized(at, x, by, norm), 2, 3, norm));
  give_statistics(at, by);
}

/// The statistics that forward gave, without the ones in their sizes.
Statistics saved_statistics(Lowering& at, const Hlo& x, size_t mean, const Dims& sizes) {
  return {at.hlo.reshape(at.tensor(mean, x.dtype), sizes),
          at.hlo.reshape(at.tensor(mean + 1, x.dtype), sizes)};
}

void lower_layer_norm_backward(Lowering& at) {
  const Hlo grad = at.tensor(0, Lowering::compute_dtype(at.tensor(0).dtype));
  const Hlo x = at.tensor(1, grad.dtype);
  const Norm norm = layer_norm_of(x, at.list(2));
  const Dims outer(x.sizes.begin(), x.sizes.begin() + norm.reduced.front());
  const Statistics by = saved_statistics(at, x, 3, outer);
  const Hlo xhat = normalized(at, x, by, norm);
  Hlo weighted = grad;
  if (at.has(5)) {
    weighted = times(at, grad, spread_over(at, at.tensor(5, grad.dtype), grad, norm.weights));
  }
  if (at.wants(0)) at.give(0, through_statistics(at, weighted, xhat, by.inverse, norm));
  if (at.wants(1)) at.give(1, at.sum(times(at, grad, xhat), norm.statistics, false));
  if (at.wants(2)) at.give(2, at.sum(grad, norm.statistics, false));
}

/// [n, groups, channels of a group, elements]: what a group normalization looks at.
Norm group_norm_of() { return {.reduced = {2, 3}, .statistics = {0, 1}, .weights = {1, 2}}; }

/// Arguments from `first` on: n, channels, elements of a channel, groups.
Hlo in_groups(Lowering& at, const Hlo& x, size_t first) {
  const int64_t groups = at.integer(first + 3);
  return at.hlo.reshape(
      x, {at.integer(first), groups, at.integer(first + 1) / groups, at.integer(first + 2)});
}

/// A weight of each channel, by groups.
Hlo grouped_weight(Lowering& at, size_t index, const Hlo& x) {
  const Hlo rows = at.hlo.reshape(at.tensor(index, x.dtype), {x.sizes[1], x.sizes[2]});
  return spread_over(at, rows, x, {1, 2});
}

void lower_group_norm(Lowering& at) {
  const Hlo x = in_groups(at, at.tensor(0, Lowering::compute_dtype(at.dtype())), 3);
  const Norm norm = group_norm_of();
  const Variance now = moments_over(at, x, norm);
  const Statistics by = {now.mean, inverse_deviation(at, now.variance, at.number(7))};
  Hlo y = normalized(at, x, by, norm);
  if (at.has(1)) y = times(at, y, grouped_weight(at, 1, x));
  if (at.has(2)) y = plus(at, y, grouped_weight(at, 2, x));
  at.give(0, at.hlo.reshape(y, at.sizes()));
  give_statistics(at, by);
}

void lower_group_norm_backward(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.tensor(0).dtype);
  const Hlo grad = in_groups(at, at.tensor(0, in), 5);
  const Hlo x = in_groups(at, at.tensor(1, in), 5);
  const Norm norm = group_norm_of();
  const Statistics by = saved_statistics(at, x, 2, {x.sizes[0], x.sizes[1]});
  const Hlo xhat = normalized(at, x, by, norm);
  const Hlo weighted = at.has(4) ? times(at, grad, grouped_weight(at, 4, x)) : grad;
  if (at.wants(0)) {
    const Hlo gradient = through_statistics(at, weighted, xhat, by.inverse, norm);
    at.give(0, at.hlo.reshape(gradient, at.sizes()));
  }
  const auto give_sum = [&](size_t result, const Hlo& of) {
    if (at.wants(result)) {
      at.give(result, at.hlo.reshape(at.sum(of, {0, 3}, false), at.sizes(result)));
    }
  };
  give_sum(1, times(at, grad, xhat));
  give_sum(2, grad);
}

}  // namespace

void add_normalizations(LoweringTable& table) {
  table["aten::native_batch_norm"] =
      batch_norm({.running = 3, .training = 5, .momentum = 6, .eps = 7});
  table["aten::_native_batch_norm_legit"] = table["aten::native_batch_norm"];
  table["aten::_native_batch_norm_legit.no_stats"] = batch_norm({.eps = 5, .always_trains = true});
  table["aten::_native_batch_norm_legit_no_training"] = batch_norm({.running = 3, .eps = 6});
  table["aten::_batch_norm_with_update"] =
      batch_norm({.running = 3, .momentum = 5, .eps = 6, .always_trains = true}, 4);
  table["aten::_batch_norm_no_update"] = batch_norm({.running = 3, .eps = 6}, 4);
  table["aten::native_batch_norm_backward"] = lower_batch_norm_backward;
  table["aten::native_layer_norm"] = lower_layer_norm;
  table["aten::native_layer_norm_backward"] = lower_layer_norm_backward;
  table["aten::native_group_norm"] = lower_group_norm;
  table["aten::native_group_norm_backward"] = lower_group_norm_backward;
}

}  // namespace levin::xla
