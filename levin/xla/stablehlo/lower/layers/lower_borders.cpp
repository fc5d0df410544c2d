// Padding by what is there: by the edge again and again, or by its reflection.
#include <algorithm>
#include <array>

#include "levin/xla/stablehlo/along.h"
#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

/// The padding of a dimension, low and high; negative numbers crop.
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

/// Repeats the element at a place of the dim.
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

struct BorderPad {
  std::string_view name, backward;
  bool is_reflection;
};
constexpr std::array<BorderPad, 6> kBorderPads = {
    {{"aten::reflection_pad1d", "aten::reflection_pad1d_backward", true},
     {"aten::reflection_pad2d", "aten::reflection_pad2d_backward", true},
     {"aten::reflection_pad3d", "aten::reflection_pad3d_backward", true},
     {"aten::replication_pad1d", "aten::replication_pad1d_backward", false},
     {"aten::replication_pad2d", "aten::replication_pad2d_backward", false},
     {"aten::replication_pad3d", "aten::replication_pad3d_backward", false}}};

}  // namespace

void add_borders(LoweringTable& table) {
  for (const auto& [name, backward, is_reflection] : kBorderPads) {
    table[name] = border_pad(is_reflection);
    table[backward] = border_pad_backward(is_reflection);
  }
}

}  // namespace levin::xla
