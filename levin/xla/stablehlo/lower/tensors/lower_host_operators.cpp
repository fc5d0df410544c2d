// Operators that a recording on the CPU holds whole.
#include <cmath>

#include "levin/base/check.h"
#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

LowerFunction filled_with(double number) {
  return [number](Lowering& at) { at.give(at.hlo.constant(number, at.dtype(), at.sizes())); };
}

/// The number is an argument.
LowerFunction filled_by(size_t index) {
  return
      [index](Lowering& at) { at.give(at.hlo.expand(at.scalar(index, at.dtype()), at.sizes())); };
}

void lower_rand(Lowering& at) { at.give(at.uniform(at.dtype(), at.sizes())); }
void lower_randn(Lowering& at) { at.give(at.normal(at.dtype(), at.sizes())); }

/// The rows of a softmax that are masked in full are zeros, not NaN.
void lower_safe_softmax(Lowering& at) {
  const Hlo x = at.tensor(0, Lowering::compute_dtype(at.dtype()));
  const Dims dims = x.rank() == 0 ? Dims{} : Dims{at.dim(1, x.rank())};
  const auto spread = [&](const Hlo& row) { return at.hlo.expand(row, x.sizes); };
  const Hlo most = at.maximum(x, dims, /*keepdim=*/true);
  const Hlo least = at.hlo.expand(at.hlo.infinity(x.dtype, true), most.sizes);
  const Hlo powers = at.hlo.unary("exponential", at.hlo.binary("subtract", x, spread(most)));
  const Hlo y = at.hlo.binary("divide", powers, spread(at.sum(powers, dims, /*keepdim=*/true)));
  at.give(at.hlo.select(spread(at.hlo.compare("EQ", most, least)), at.like(0, y), y));
}

Hlo norm_of(Lowering& at, const Hlo& given, double p) {
  const Hlo x = at.hlo.unary("abs", at.hlo.convert(given, Lowering::compute_dtype(given.dtype)));
  Dims dims;
  for (int64_t dim = 0; dim < x.rank(); ++dim) dims.push_back(dim);
  if (std::isinf(p)) return at.hlo.reduce("maximum", x, at.hlo.constant(0, x.dtype), dims);
  if (p == 2) return at.hlo.unary("sqrt", at.sum(at.hlo.binary("multiply", x, x), dims, false));
  const Hlo total = at.sum(at.hlo.binary("power", x, at.like(p, x)), dims, false);
  return at.hlo.binary("power", total, at.like(1 / p, total));
}

/// self, ord
void lower_norms(Lowering& at) {
  const double p = at.number(1);
  LEVIN_CHECK(p > 0, "xla.lowering",
              "{} of order {} has no form in StableHLO, wanted one above 0; clip by another norm",
              at.node.target(), p);
  for (const Hlo& x : at.tensors(0)) at.give(norm_of(at, x, p));
}

/// Each of a list with one number, which may be a tensor.
LowerFunction each_with(std::string_view name) {
  return [name](Lowering& at) {
    for (const Hlo& x : at.tensors(0)) {
      const Hlo number = at.hlo.reshape(at.tensor(1, x.dtype), {});
      at.give(at.hlo.binary(name, x, at.spread(number, x)));
    }
  };
}

}  // namespace

void add_host_operators(LoweringTable& table) {
  LoweringTable views;
  add_views(views);
  table["aten::unsafe_split.Tensor"] = views.at("aten::split.Tensor");
  table["aten::unsafe_split_with_sizes"] = views.at("aten::split_with_sizes");
  for (const std::string_view name : {"aten::empty_like", "aten::new_zeros", "aten::new_empty"}) {
    table[name] = filled_with(0);
  }
  for (const std::string_view name : {"aten::ones", "aten::new_ones"}) {
    table[name] = filled_with(1);
  }
  table["aten::scalar_tensor"] = filled_by(0);
  table["aten::full"] = table["aten::full_like"] = filled_by(1);
  table["aten::new_full"] = filled_by(2);
  table["aten::rand"] = table["aten::rand_like"] = lower_rand;
  table["aten::randn"] = table["aten::randn_like"] = lower_randn;
  table["aten::_safe_softmax"] = lower_safe_softmax;
  table["aten::_foreach_norm.Scalar"] = lower_norms;
  table["aten::_foreach_mul_.Tensor"] = table["aten::_foreach_mul_.Scalar"] = each_with("multiply");
  table["aten::_foreach_clamp_max_.Scalar"] = each_with("minimum");
  table["aten::_foreach_clamp_min_.Scalar"] = each_with("maximum");
}

}  // namespace levin::xla
