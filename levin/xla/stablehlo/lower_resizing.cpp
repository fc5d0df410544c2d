// Planes of other sizes: interpolation, padding by what is there, and pixels from channels. All of
// it goes along one dimension after the other.
#include <ATen/native/UpSample.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "levin/xla/stablehlo/along.h"
#include "levin/xla/stablehlo/lowering.h"

namespace levin::xla {
namespace {

/// What one element of the result takes from: y[i] = sum over taps of weights[i] x[places[i]].
/// Places do not fall. No weights: ones.
struct Tap {
  Dims places;
  std::vector<double> weights;
};

/// How a dimension of `size` elements becomes one of `count`.
struct Resize {
  int64_t size = 0, count = 0;
  bool align_corners = false;
  std::optional<double> scale;
};

using TapsOf = std::vector<Tap> (*)(const Resize&, at::ScalarType);

template <int64_t (*kPlace)(int64_t, int64_t, int64_t, std::optional<double>)>
std::vector<Tap> nearest_taps(const Resize& to, at::ScalarType /*dtype*/) {
  Tap tap;
  for (int64_t i = 0; i < to.count; ++i) {
    tap.places.push_back(kPlace(i, to.size, to.count, to.scale));
  }
  return {tap};
}

/// In the arithmetic of ATen, so that the places are its places.
template <class Real>
std::vector<Tap> linear_taps_in(const Resize& to) {
  std::vector<Tap> taps(2);
  const Real ratio =
      at::native::area_pixel_compute_scale<Real>(to.size, to.count, to.align_corners, to.scale);
  for (int64_t i = 0; i < to.count; ++i) {
    std::array<int64_t, 2> places = {};
    std::array<Real, 2> weights = {};
    at::native::compute_source_index_and_lambda<Real, Real>(places[0], places[1], weights[0],
                                                            weights[1], ratio, i, to.size, to.count,
                                                            to.align_corners);
    for (size_t tap = 0; tap < taps.size(); ++tap) {
      taps[tap].places.push_back(places[tap]);
      taps[tap].weights.push_back(static_cast<double>(weights[tap]));
    }
  }
  return taps;
}

template <class Real>
std::vector<Tap> cubic_taps_in(const Resize& to) {
  std::vector<Tap> taps(4);
  const Real ratio =
      at::native::area_pixel_compute_scale<Real>(to.size, to.count, to.align_corners, to.scale);
  for (int64_t i = 0; i < to.count; ++i) {
    const Real real = at::native::area_pixel_compute_source_index<Real>(ratio, i, to.align_corners,
                                                                        /*cubic=*/true);
    int64_t place = 0;
    Real way = 0;
    at::native::guard_index_and_lambda(real, to.size, place, way);
    std::array<Real, 4> weights = {};
    at::native::get_cubic_upsample_coefficients<Real>(weights.data(), way);
    for (size_t tap = 0; tap < taps.size(); ++tap) {
      const int64_t wanted = place - 1 + static_cast<int64_t>(tap);
      taps[tap].places.push_back(std::clamp<int64_t>(wanted, 0, to.size - 1));
      taps[tap].weights.push_back(static_cast<double>(weights[tap]));
    }
  }
  return taps;
}

std::vector<Tap> linear_taps(const Resize& to, at::ScalarType dtype) {
  return dtype == at::kDouble ? linear_taps_in<double>(to) : linear_taps_in<float>(to);
}

std::vector<Tap> cubic_taps(const Resize& to, at::ScalarType dtype) {
  return dtype == at::kDouble ? cubic_taps_in<double>(to) : cubic_taps_in<float>(to);
}

Hlo weighted(Lowering& at, const Hlo& x, const Tap& tap, int64_t dim) {
  if (tap.weights.empty()) return x;
  return at.hlo.binary("multiply", x, spread_along(at.hlo, tap.weights, x, dim));
}

Hlo resized(Lowering& at, const Hlo& x, int64_t dim, const std::vector<Tap>& taps) {
  std::optional<Hlo> sum;
  for (const Tap& tap : taps) {
    const Hlo part = weighted(at, take_along(at.hlo, x, dim, tap.places), tap, dim);
    sum = sum ? at.hlo.binary("add", *sum, part) : part;
  }
  return sum.value();
}

/// The adjoint: what each element of x was taken for.
Hlo resized_back(Lowering& at, const Hlo& grad, int64_t dim, const std::vector<Tap>& taps,
                 int64_t size) {
  std::optional<Hlo> sum;
  for (const Tap& tap : taps) {
    const Hlo part = sum_runs(at.hlo, weighted(at, grad, tap, dim), dim, runs_of(tap.places, size));
    sum = sum ? at.hlo.binary("add", *sum, part) : part;
  }
  return sum.value();
}

/// The scale that argument `first` + i has for a dimension, if it is given.
std::optional<double> scale_of(Lowering& at, size_t index) {
  if (index >= at.node.arguments().size() || !at.has(index)) return std::nullopt;
  return at.number(index);
}

/// Arguments: x, output_size, align_corners where there is one, scales.
LowerFunction upsample(TapsOf taps, int64_t rank, bool has_corners) {
  return [=](Lowering& at) {
    Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Dims out = at.sizes();
    if (at.hlo.constant(0, x.dtype, out).numel() == 0) {
      return at.give(at.hlo.constant(0, x.dtype, out));
    }
    const size_t scales = has_corners ? 3 : 2;
    for (int64_t i = rank - 1; i >= 0; --i) {
      const int64_t dim = x.rank() - rank + i;
      const Resize to{.size = x.sizes[dim],
                      .count = out[dim],
                      .align_corners = has_corners && at.flag(2),
                      .scale = scale_of(at, scales + i)};
      x = resized(at, x, dim, taps(to, x.dtype));
    }
    at.give(x);
  };
}

/// Arguments: grad, output_size, input_size, align_corners where there is one, scales.
LowerFunction upsample_backward(TapsOf taps, int64_t rank, bool has_corners) {
  return [=](Lowering& at) {
    Hlo grad = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    const Dims sizes = at.sizes();
    if (grad.numel() == 0) return at.give(at.hlo.constant(0, grad.dtype, sizes));
    const size_t scales = has_corners ? 4 : 3;
    for (int64_t i = 0; i < rank; ++i) {
      const int64_t dim = grad.rank() - rank + i;
      const Resize to{.size = sizes[dim],
                      .count = grad.sizes[dim],
                      .align_corners = has_corners && at.flag(3),
                      .scale = scale_of(at, scales + i)};
      grad = resized_back(at, grad, dim, taps(to, grad.dtype), sizes[dim]);
    }
    at.give(grad);
  };
}

/// What a dimension is padded with, low and high; negative numbers crop.
struct Border {
  int64_t dim = 0, low = 0, high = 0;
};

std::vector<Border> borders_of(Lowering& at, size_t index, int64_t rank) {
  const Dims given = at.list(index);
  std::vector<Border> borders;
  for (size_t i = 0; i < given.size() / 2; ++i) {
    borders.push_back({rank - 1 - static_cast<int64_t>(i), given[2 * i], given[2 * i + 1]});
  }
  return borders;
}

/// What stands at both ends: the first (last) element again and again, or those next to it the
/// other way round.
Hlo replicated(Lowering& at, const Hlo& x, int64_t dim, int64_t place, int64_t count) {
  Dims sizes = x.sizes;
  sizes[dim] = count;
  return at.hlo.expand(slice_along(at.hlo, x, dim, place, place + 1), sizes);
}

Hlo padded_along(Lowering& at, const Hlo& whole, const Border& by, bool is_reflection) {
  const int64_t dim = by.dim;
  const Hlo x = slice_along(at.hlo, whole, dim, std::max<int64_t>(0, -by.low),
                            whole.sizes[dim] - std::max<int64_t>(0, -by.high));
  const int64_t size = x.sizes[dim];
  std::vector<Hlo> parts = {x};
  if (by.low > 0) {
    parts.insert(parts.begin(),
                 is_reflection ? at.hlo.reverse(slice_along(at.hlo, x, dim, 1, by.low + 1), {dim})
                               : replicated(at, x, dim, 0, by.low));
  }
  if (by.high > 0) {
    parts.push_back(
        is_reflection
            ? at.hlo.reverse(slice_along(at.hlo, x, dim, size - 1 - by.high, size - 1), {dim})
            : replicated(at, x, dim, size - 1, by.high));
  }
  return parts.size() == 1 ? x : at.hlo.concatenate(parts, dim);
}

/// The adjoint: the ends of the gradient are added to where they came from.
Hlo unpadded_along(Lowering& at, const Hlo& grad, const Border& by, bool is_reflection) {
  const int64_t dim = by.dim;
  const int64_t low = std::max<int64_t>(0, by.low);
  const int64_t size = grad.sizes[dim] - low - std::max<int64_t>(0, by.high);
  const Hlo zero = at.hlo.constant(0, grad.dtype);
  Hlo sum = slice_along(at.hlo, grad, dim, low, low + size);
  const auto add = [&](const Hlo& end, int64_t reflected_at, int64_t replicated_at) {
    const Hlo part = is_reflection
                         ? at.hlo.reverse(end, {dim})
                         : at.keep_dims(at.hlo.reduce("add", end, zero, {dim}), end, {dim});
    const int64_t place = is_reflection ? reflected_at : replicated_at;
    sum = at.hlo.binary("add", sum,
                        pad_along(at.hlo, part, zero, dim, place, size - place - part.sizes[dim]));
  };
  if (by.low > 0) add(slice_along(at.hlo, grad, dim, 0, low), 1, 0);
  if (by.high > 0) {
    add(slice_along(at.hlo, grad, dim, low + size, grad.sizes[dim]), size - 1 - by.high, size - 1);
  }
  return pad_along(at.hlo, sum, zero, dim, std::max<int64_t>(0, -by.low),
                   std::max<int64_t>(0, -by.high));
}

LowerFunction border_pad(bool is_reflection) {
  return [is_reflection](Lowering& at) {
    Hlo x = at.tensor(0);
    for (const Border& by : borders_of(at, 1, x.rank())) {
      x = padded_along(at, x, by, is_reflection);
    }
    at.give(x);
  };
}

LowerFunction border_pad_backward(bool is_reflection) {
  return [is_reflection](Lowering& at) {
    Hlo grad = at.tensor(0, Lowering::compute_dtype(at.dtype()));
    for (const Border& by : borders_of(at, 2, grad.rank())) {
      grad = unpadded_along(at, grad, by, is_reflection);
    }
    at.give(grad);
  };
}

/// [.., c r r, h, w] as [.., c, h r, w r]
void lower_pixel_shuffle(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t factor = at.integer(1);
  const int64_t first = x.rank() - 3;
  Dims split(x.sizes.begin(), x.sizes.begin() + first);
  split.insert(split.end(), {x.sizes[first] / (factor * factor), factor, factor, x.sizes[first + 1],
                             x.sizes[first + 2]});
  Dims permutation(split.size());
  std::iota(permutation.begin(), permutation.begin() + first, 0);
  const std::array<int64_t, 5> order = {0, 3, 1, 4, 2};
  for (size_t i = 0; i < order.size(); ++i) permutation[first + i] = first + order[i];
  at.give(at.hlo.reshape(at.hlo.transpose(at.hlo.reshape(x, split), permutation), at.sizes()));
}

void lower_pixel_unshuffle(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t factor = at.integer(1);
  const int64_t first = x.rank() - 3;
  Dims split(x.sizes.begin(), x.sizes.begin() + first + 1);
  split.insert(split.end(),
               {x.sizes[first + 1] / factor, factor, x.sizes[first + 2] / factor, factor});
  Dims permutation(split.size());
  std::iota(permutation.begin(), permutation.begin() + first, 0);
  const std::array<int64_t, 5> order = {0, 2, 4, 1, 3};
  for (size_t i = 0; i < order.size(); ++i) permutation[first + i] = first + order[i];
  at.give(at.hlo.reshape(at.hlo.transpose(at.hlo.reshape(x, split), permutation), at.sizes()));
}

/// [n, groups a, ..] as [n, a groups, ..]
void lower_channel_shuffle(Lowering& at) {
  const Hlo x = at.tensor(0);
  const int64_t groups = at.integer(1);
  Dims split = x.sizes;
  split[1] /= groups;
  split.insert(split.begin() + 1, groups);
  Dims permutation(split.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[1], permutation[2]);
  at.give(at.hlo.reshape(at.hlo.transpose(at.hlo.reshape(x, split), permutation), at.sizes()));
}

}  // namespace

void add_resizing(LoweringTable& table) {
  struct Family {
    std::string_view name, backward;
    TapsOf taps;
    int64_t rank;
    bool has_corners;
  };
  constexpr TapsOf kNearest = nearest_taps<at::native::nearest_idx>;
  constexpr TapsOf kExact = nearest_taps<at::native::nearest_exact_idx>;
  for (const Family& family : std::initializer_list<Family>{
           {"aten::upsample_nearest1d", "aten::upsample_nearest1d_backward", kNearest, 1, false},
           {"aten::upsample_nearest2d", "aten::upsample_nearest2d_backward", kNearest, 2, false},
           {"aten::upsample_nearest3d", "aten::upsample_nearest3d_backward", kNearest, 3, false},
           {"aten::_upsample_nearest_exact1d", "aten::_upsample_nearest_exact1d_backward", kExact,
            1, false},
           {"aten::_upsample_nearest_exact2d", "aten::_upsample_nearest_exact2d_backward", kExact,
            2, false},
           {"aten::_upsample_nearest_exact3d", "aten::_upsample_nearest_exact3d_backward", kExact,
            3, false},
           {"aten::upsample_linear1d", "aten::upsample_linear1d_backward", linear_taps, 1, true},
           {"aten::upsample_bilinear2d", "aten::upsample_bilinear2d_backward", linear_taps, 2,
            true},
           {"aten::upsample_trilinear3d", "aten::upsample_trilinear3d_backward", linear_taps, 3,
            true},
           {"aten::upsample_bicubic2d", "aten::upsample_bicubic2d_backward", cubic_taps, 2,
            true}}) {
    table[family.name] = upsample(family.taps, family.rank, family.has_corners);
    table[family.backward] = upsample_backward(family.taps, family.rank, family.has_corners);
  }
  for (const std::string_view name :
       {"aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d"}) {
    table[name] = border_pad(/*is_reflection=*/true);
  }
  for (const std::string_view name :
       {"aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward",
        "aten::reflection_pad3d_backward"}) {
    table[name] = border_pad_backward(/*is_reflection=*/true);
  }
  for (const std::string_view name :
       {"aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d"}) {
    table[name] = border_pad(/*is_reflection=*/false);
  }
  for (const std::string_view name :
       {"aten::replication_pad1d_backward", "aten::replication_pad2d_backward",
        "aten::replication_pad3d_backward"}) {
    table[name] = border_pad_backward(/*is_reflection=*/false);
  }
  table["aten::pixel_shuffle"] = lower_pixel_shuffle;
  table["aten::pixel_unshuffle"] = lower_pixel_unshuffle;
  table["aten::channel_shuffle"] = lower_channel_shuffle;
}

}  // namespace levin::xla
