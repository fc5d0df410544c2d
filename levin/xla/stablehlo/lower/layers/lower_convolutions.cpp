// Convolutions of 1 to 3 dimensions, and the same by patches (unfold and fold).
#include <algorithm>

#include "levin/xla/stablehlo/along.h"
#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

/// Arguments from `first` on: stride, padding, dilation, transposed, output_padding, groups.
struct Convolution {
  Convolution(Lowering& at, size_t first, int64_t num_spatial) {
    const auto each = [&](size_t index) {
      Dims numbers = at.list(index);
      if (numbers.size() == 1) numbers.resize(num_spatial, numbers.front());
      return numbers;
    };
    stride = each(first);
    padding = each(first + 1);
    dilation = each(first + 2);
    is_transposed = at.flag(first + 3);
    groups = at.integer(first + 5);
  }
  Dims stride, padding, dilation;
  bool is_transposed = false;
  int64_t groups = 1;
};

/// [groups * a, b, space] as [a, groups * b, space]: the kernel's two sides are changed.
Hlo with_sides_changed(Lowering& at, const Hlo& kernel, int64_t groups) {
  if (groups == 1) return kernel;
  Dims split = kernel.sizes;
  split[0] /= groups;
  split.insert(split.begin(), groups);
  Dims permutation(split.size());
  for (size_t i = 0; i < split.size(); ++i) permutation[i] = static_cast<int64_t>(i);
  std::swap(permutation[0], permutation[1]);
  Dims joined = kernel.sizes;
  joined[0] /= groups;
  joined[1] *= groups;
  return at.hlo.reshape(at.hlo.transpose(at.hlo.reshape(kernel, split), permutation), joined);
}

/// y[p] = sum over k of x[stride p + dilation k - padding] w[k], where y is to have these sizes of
/// its space.
Hlo convolved(Lowering& at, const Hlo& x, const Hlo& w, const Convolution& of, const Dims& sizes) {
  const auto num_spatial = static_cast<size_t>(x.rank() - 2);
  ConvolutionWindow window{.stride = of.stride,
                           .pad_low = of.padding,
                           .pad_high = {},
                           .lhs_dilation = Dims(num_spatial, 1),
                           .rhs_dilation = of.dilation};
  for (size_t i = 0; i < num_spatial; ++i) {
    const int64_t reach = of.dilation[i] * (w.sizes[i + 2] - 1) + 1;
    window.pad_high.push_back((sizes[i + 2] - 1) * of.stride[i] + reach - x.sizes[i + 2] -
                              of.padding[i]);
  }
  return at.hlo.convolution(x, w, window, {.input = "bf", .kernel = "oi", .output = "bf"},
                            of.groups);
}

/// The adjoint of that in x: y[stride p + dilation k - padding] += x[p] w[k].
Hlo spread_out(Lowering& at, const Hlo& x, const Hlo& w, const Convolution& of, const Dims& sizes) {
  const auto num_spatial = static_cast<size_t>(x.rank() - 2);
  ConvolutionWindow window{.stride = Dims(num_spatial, 1),
                           .pad_low = {},
                           .pad_high = {},
                           .lhs_dilation = of.stride,
                           .rhs_dilation = of.dilation};
  Dims space;
  for (size_t i = 0; i < num_spatial; ++i) {
    const int64_t reach = of.dilation[i] * (w.sizes[i + 2] - 1);
    window.pad_low.push_back(reach - of.padding[i]);
    const int64_t dilated = (x.sizes[i + 2] - 1) * of.stride[i] + 1;
    window.pad_high.push_back(sizes[i + 2] + reach - dilated - window.pad_low.back());
    space.push_back(static_cast<int64_t>(i) + 2);
  }
  const Hlo kernel = at.hlo.reverse(with_sides_changed(at, w, of.groups), space);
  return at.hlo.convolution(x, kernel, window, {.input = "bf", .kernel = "io", .output = "bf"},
                            of.groups);
}

/// The adjoint in w: w[k] = sum over p of x[stride p + dilation k - padding] y[p].
Hlo kernel_of(Lowering& at, const Hlo& x, const Hlo& y, const Convolution& of, const Dims& sizes) {
  const auto num_spatial = static_cast<size_t>(x.rank() - 2);
  ConvolutionWindow window{.stride = of.dilation,
                           .pad_low = of.padding,
                           .pad_high = {},
                           .lhs_dilation = Dims(num_spatial, 1),
                           .rhs_dilation = of.stride};
  for (size_t i = 0; i < num_spatial; ++i) {
    const int64_t reach = (y.sizes[i + 2] - 1) * of.stride[i] + 1;
    window.pad_high.push_back((sizes[i + 2] - 1) * of.dilation[i] + reach - x.sizes[i + 2] -
                              of.padding[i]);
  }
  return at.hlo.convolution(x, y, window, {.input = "fb", .kernel = "io", .output = "fb"}, 1,
                            of.groups);
}

Hlo or_zeros(Lowering& at, const Dims& sizes, std::initializer_list<Hlo> of,
             const std::function<Hlo()>& compute) {
  const bool is_empty = std::ranges::any_of(of, [](const Hlo& x) { return x.numel() == 0; });
  return is_empty ? at.hlo.constant(0, of.begin()->dtype, sizes) : compute();
}

void lower_convolution(Lowering& at) {
  const Hlo x = at.tensor(0);
  const Hlo w = at.tensor(1, x.dtype);
  const Convolution of(at, 3, x.rank() - 2);
  const Hlo y = or_zeros(at, at.sizes(), {x, w}, [&] {
    return of.is_transposed ? spread_out(at, x, w, of, at.sizes())
                            : convolved(at, x, w, of, at.sizes());
  });
  if (!at.has(2)) return at.give(y);
  const Hlo bias = at.hlo.broadcast_in_dim(at.tensor(2, y.dtype), y.sizes, {1});
  at.give(at.hlo.binary("add", y, bias));
}

void lower_convolution_backward(Lowering& at) {
  const Hlo grad = at.tensor(0);
  const Hlo x = at.tensor(1, grad.dtype);
  const Hlo w = at.tensor(2, grad.dtype);
  const Convolution of(at, 4, x.rank() - 2);
  if (at.wants(0)) {
    at.give(0, or_zeros(at, x.sizes, {grad, w}, [&] {
              return of.is_transposed ? convolved(at, grad, w, of, x.sizes)
                                      : spread_out(at, grad, w, of, x.sizes);
            }));
  }
  if (at.wants(1)) {
    at.give(1, or_zeros(at, w.sizes, {grad, x}, [&] {
              return of.is_transposed ? kernel_of(at, grad, x, of, w.sizes)
                                      : kernel_of(at, x, grad, of, w.sizes);
            }));
  }
  if (!at.wants(2)) return;
  Dims others = {0};
  for (int64_t i = 2; i < grad.rank(); ++i) others.push_back(i);
  const Hlo wide = at.hlo.convert(grad, Lowering::compute_dtype(grad.dtype));
  at.give(2, at.sum(wide, others, false));
}

/// The patches of a plane [n, c, height, width].
struct Patches {
  Dims kernel, dilation, padding, stride;
  std::array<int64_t, 2> count = {};  ///< number of patches, down and across

  Patches(Lowering& at, size_t first, int64_t height, int64_t width)
      : kernel(at.list(first)),
        dilation(at.list(first + 1)),
        padding(at.list(first + 2)),
        stride(at.list(first + 3)) {
    for (Dims* each : {&kernel, &dilation, &padding, &stride}) {
      if (each->size() == 1) each->push_back(each->front());
    }
    const std::array<int64_t, 2> size = {height, width};
    for (size_t i = 0; i < 2; ++i) {
      count[i] = (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
    }
  }
};

/// im2col: for each place of the kernel the elements that lie under it.
void lower_unfold(Lowering& at) {
  Hlo x = at.tensor(0);
  if (x.rank() == 3) x = at.hlo.reshape(x, {1, x.sizes[0], x.sizes[1], x.sizes[2]});
  const Patches of(at, 1, x.sizes[2], x.sizes[3]);
  const Dims around = {0, 0, of.padding[0], of.padding[1]};
  const Hlo padded = at.hlo.pad(x, at.hlo.constant(0, x.dtype), around, around, Dims(4, 0));
  std::vector<Hlo> parts;
  for (int64_t i = 0; i < of.kernel[0]; ++i) {
    for (int64_t j = 0; j < of.kernel[1]; ++j) {
      const Dims start = {0, 0, i * of.dilation[0], j * of.dilation[1]};
      const Dims limit = {x.sizes[0], x.sizes[1], start[2] + (of.count[0] - 1) * of.stride[0] + 1,
                          start[3] + (of.count[1] - 1) * of.stride[1] + 1};
      const Hlo part = at.hlo.slice(padded, start, limit, {1, 1, of.stride[0], of.stride[1]});
      parts.push_back(at.hlo.reshape(part, {x.sizes[0], x.sizes[1], 1, of.count[0] * of.count[1]}));
    }
  }
  at.give(at.hlo.reshape(at.hlo.concatenate(parts, 2), at.sizes()));
}

/// col2im: each element is the sum of the elements that unfold made of it.
void lower_fold(Lowering& at) {
  const Hlo given = at.tensor(0);
  const Dims out = at.sizes();
  const int64_t height = out[out.size() - 2];
  const int64_t width = out[out.size() - 1];
  const Patches of(at, 2, height, width);
  const int64_t num_places = of.kernel[0] * of.kernel[1];
  const int64_t batch = given.rank() == 2 ? 1 : given.sizes[0];
  const int64_t channels = given.sizes[given.rank() - 2] / num_places;
  const Hlo x = at.hlo.reshape(at.hlo.convert(given, Lowering::compute_dtype(given.dtype)),
                               {batch, channels, num_places, of.count[0], of.count[1]});
  Hlo sum = at.hlo.constant(0, x.dtype, {batch, channels, height, width});
  for (int64_t place = 0; place < num_places; ++place) {
    const Hlo part = at.hlo.reshape(slice_along(at.hlo, x, 2, place, place + 1),
                                    {batch, channels, of.count[0], of.count[1]});
    Dims low = {0, 0, (place / of.kernel[1]) * of.dilation[0] - of.padding[0],
                (place % of.kernel[1]) * of.dilation[1] - of.padding[1]};
    Dims high = {0, 0, height - low[2] - (of.count[0] - 1) * of.stride[0] - 1,
                 width - low[3] - (of.count[1] - 1) * of.stride[1] - 1};
    const Hlo spread = at.hlo.pad(part, at.hlo.constant(0, x.dtype), low, high,
                                  {0, 0, of.stride[0] - 1, of.stride[1] - 1});
    sum = place == 0 ? spread : at.hlo.binary("add", sum, spread);
  }
  at.give(at.hlo.reshape(sum, out));
}

}  // namespace

void add_convolutions(LoweringTable& table) {
  table["aten::convolution"] = table["aten::_convolution"] = lower_convolution;
  table["aten::convolution_overrideable"] = lower_convolution;
  table["aten::convolution_backward"] = lower_convolution_backward;
  table["aten::im2col"] = lower_unfold;
  table["aten::col2im"] = lower_fold;
}

}  // namespace levin::xla
