// Weights by direction and length.
#include <numeric>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

/// The sum of x over all dimensions but one, which stay as ones.
Term sum_beside(Lowering& at, const Term& x, int64_t dim) {
  Dims others(x.sizes().size());
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + dim);
  return {at.hlo, at.sum(x, others, /*keepdim=*/true)};
}

int64_t rank_of(const Term& x) { return static_cast<int64_t>(x.sizes().size()); }

Term argument(Lowering& at, size_t index, at::ScalarType dtype) {
  return {at.hlo, at.tensor(index, dtype)};
}

Term reshaped(Lowering& at, const Term& x, const Dims& sizes) {
  return {at.hlo, at.hlo.reshape(x, sizes)};
}

/// v * g / |v|: lengths along a dimension.
void lower_weight_norm(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.dtype());
  const Term v = argument(at, 0, in);
  const Term length = sum_beside(at, v * v, at.dim(2, rank_of(v))).unary("sqrt");
  const Term factor = reshaped(at, argument(at, 1, in), length.sizes()) / length;
  at.give(0, v * factor);
  at.give(1, reshaped(at, length, at.sizes(1)));
}

/// Splits grad: v gets its component across v, g the component along v.
void lower_weight_norm_backward(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.dtype());
  const Term grad = argument(at, 0, in);
  const Term v = argument(at, 1, in);
  const Term total = sum_beside(at, grad * v, at.dim(4, rank_of(v)));
  const Term length = reshaped(at, argument(at, 3, in), total.sizes());
  const Term g = reshaped(at, argument(at, 2, in), total.sizes());
  const Term along = total / (length * length);
  const Term across = grad - v * along;
  at.give(0, across * (g / length));
  at.give(1, reshaped(at, total / length, at.sizes(1)));
}

}  // namespace

void add_weight_norms(LoweringTable& table) {
  table["aten::_weight_norm_interface"] = lower_weight_norm;
  table["aten::_weight_norm_interface_backward"] = lower_weight_norm_backward;
}

}  // namespace levin::xla
