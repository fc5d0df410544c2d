// Interpolation: planes of other sizes, along one dimension after the other.
#include <ATen/native/UpSample.h>

#include <algorithm>
#include <array>

#include "levin/xla/stablehlo/along.h"
#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

/// The inputs of one element of the result: y[i] = sum over taps of weights[i] x[places[i]].
/// Places do not fall. No weights: ones.
struct Tap {
  Dims places;
  std::vector<double> weights;
};

/// The resizing of a dimension from `size` elements to `count`.
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

}  // namespace

void add_upsampling(LoweringTable& table) {
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
}

}  // namespace levin::xla
