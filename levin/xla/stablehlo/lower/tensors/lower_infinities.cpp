// Lowerings that find NaN and infinite elements, or replace them by other numbers.
#include <ATen/Dispatch.h>

#include <limits>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

Hlo is_finite(Lowering& at, const Hlo& x) {
  return at.hlo.call("is_finite", {{x}}, "", at::kBool, x.sizes);
}

void lower_isinf(Lowering& at) {
  const Hlo x = at.tensor(0);
  if (!at::isFloatingType(x.dtype)) return at.give(at.hlo.constant(false, at::kBool, x.sizes));
  const Hlo magnitude = at.hlo.unary("abs", x);
  at.give(at.hlo.compare("EQ", magnitude, at.spread(at.hlo.infinity(x.dtype, false), x)));
}

LowerFunction is_infinity(bool is_negative) {
  return [is_negative](Lowering& at) {
    const Hlo x = at.tensor(0);
    if (!at::isFloatingType(x.dtype)) return at.give(at.hlo.constant(false, at::kBool, x.sizes));
    const Hlo infinity = at.hlo.infinity(x.dtype, is_negative);
    at.give(at.hlo.compare("EQ", x, at.spread(infinity, x)));
  };
}

void lower_nan_to_num(Lowering& at) {
  const Hlo x = at.tensor(0);
  if (!at::isFloatingType(x.dtype)) return at.give(x);
  const auto bound = [&](size_t index, const at::Scalar& otherwise) {
    return at.has(index) ? at.hlo.constant(at.number(index), x.dtype)
                         : at.hlo.constant(otherwise, x.dtype);
  };
  const double most = AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.dtype, "nan_to_num",
      [&] { return static_cast<double>(std::numeric_limits<scalar_t>::max()); });
  const Hlo zero = at.like(0, x);
  const Hlo bounded =
      at.hlo.select(is_finite(at, x), x,
                    at.hlo.select(at.hlo.compare("GT", x, zero), at.spread(bound(2, most), x),
                                  at.spread(bound(3, -most), x)));
  at.give(at.hlo.select(at.hlo.compare("NE", x, x), at.spread(bound(1, 0.0), x), bounded));
}

}  // namespace

void add_infinities(LoweringTable& table) {
  table["aten::isnan"] = [](Lowering& at) {
    at.give(at.hlo.compare("NE", at.tensor(0), at.tensor(0)));
  };
  table["aten::isfinite"] = [](Lowering& at) { at.give(is_finite(at, at.tensor(0))); };
  table["aten::isinf"] = lower_isinf;
  table["aten::isposinf"] = is_infinity(false);
  table["aten::isneginf"] = is_infinity(true);
  table["aten::nan_to_num"] = lower_nan_to_num;
}

}  // namespace levin::xla
