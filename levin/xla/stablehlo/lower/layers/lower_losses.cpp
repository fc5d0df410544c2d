// Losses of two tensors element by element, and their gradients, as
// aten/src/ATen/native/{Loss.cpp, cpu/BinaryOpsKernel.cpp, cpu/PointwiseOpsKernel.cpp} have them.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

/// Arguments 0 and 1, repeated to the sizes of both.
std::pair<Term, Term> pair_of(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.dtype());
  const Hlo a = at.tensor(0, in);
  const Hlo b = at.tensor(1, in);
  const auto sizes = at::infer_size_dimvector(a.sizes, b.sizes);
  const Dims both(sizes.begin(), sizes.end());
  return {Term(at.hlo, at.hlo.expand(a, both)), Term(at.hlo, at.hlo.expand(b, both))};
}

/// The divisor of each element's gradient: argument `index` is the reduction.
double divisor_of(Lowering& at, size_t index, const Term& x) {
  return at.integer(index) == at::Reduction::Mean ? static_cast<double>(x.hlo().numel()) : 1.0;
}

/// f of input and target; argument 2 is the reduction.
LowerFunction loss(Term (*f)(Lowering&, const Term&, const Term&), size_t reduction) {
  return [=](Lowering& at) {
    const auto [x, t] = pair_of(at);
    give_loss(at, f(at, x, t), at.integer(reduction));
  };
}

/// f of the incoming gradient, input and target; scaled as the reduction has it.
LowerFunction loss_gradient(Term (*f)(Lowering&, const Term&, const Term&, const Term&),
                            size_t reduction) {
  return [=](Lowering& at) {
    const Term x = term_of(at, 1);
    const Term gradient = f(at, term_of(at, 0), x, term_of(at, 2));
    const double divisor = divisor_of(at, reduction, x);
    at.give(divisor == 1 ? gradient : gradient / divisor);
  };
}

Term squared_error(Lowering&, const Term& x, const Term& t) { return (x - t) * (x - t); }

Term squared_error_gradient(Lowering&, const Term& grad, const Term& x, const Term& t) {
  return 2 * (x - t) * grad;
}

Term smooth_l1(Lowering& at, const Term& x, const Term& t) {
  const double beta = at.number(3);
  const Term distance = abs(x - t);
  if (beta == 0) return distance;
  return where(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta);
}

Term smooth_l1_gradient(Lowering& at, const Term& grad, const Term& x, const Term& t) {
  const double beta = at.number(4);
  const Term away = x - t;
  const Term inner = beta == 0 ? grad : grad * away / beta;
  return where(away <= -beta, -grad, where(away >= beta, grad, inner));
}

Term huber(Lowering& at, const Term& x, const Term& t) {
  const double delta = at.number(3);
  const Term distance = abs(x - t);
  return where(distance <= delta, 0.5 * distance * distance, delta * (distance - 0.5 * delta));
}

Term huber_gradient(Lowering& at, const Term& grad, const Term& x, const Term& t) {
  const double delta = at.number(4);
  const Term away = x - t;
  return where(away <= -delta, grad * -delta, where(away >= delta, grad * delta, away * grad));
}

Term soft_margin(Lowering&, const Term& x, const Term& t) { return log1p(exp(-t * x)); }

Term soft_margin_gradient(Lowering&, const Term& grad, const Term& x, const Term& t) {
  const Term power = exp(-t * x);
  return -t * power / (power + 1) * grad;
}

/// Logarithms are no less than -100.
void lower_binary_cross_entropy(Lowering& at) {
  const auto [x, t] = pair_of(at);
  Term each = (t - 1) * maximum(log1p(-x), -100) - t * maximum(log(x), -100);
  if (at.has(2)) each = each * Term(at.hlo, at.tensor(2, x.dtype())).expanded(x.sizes());
  give_loss(at, each, at.integer(3));
}

void lower_binary_cross_entropy_backward(Lowering& at) {
  const Term x = term_of(at, 1);
  Term gradient = term_of(at, 0) * (x - term_of(at, 2)) / maximum((1 - x) * x, 1e-12);
  if (at.has(3)) gradient = gradient * term_of(at, 3);
  at.give(gradient / divisor_of(at, 4, x));
}

}  // namespace

void add_losses(LoweringTable& table) {
  table["aten::mse_loss"] = loss(squared_error, 2);
  table["aten::mse_loss_backward"] = loss_gradient(squared_error_gradient, 3);
  table["aten::smooth_l1_loss"] = loss(smooth_l1, 2);
  table["aten::smooth_l1_loss_backward"] = loss_gradient(smooth_l1_gradient, 3);
  table["aten::huber_loss"] = loss(huber, 2);
  table["aten::huber_loss_backward"] = loss_gradient(huber_gradient, 3);
  table["aten::soft_margin_loss"] = loss(soft_margin, 2);
  table["aten::soft_margin_loss_backward"] = loss_gradient(soft_margin_gradient, 3);
  table["aten::binary_cross_entropy"] = lower_binary_cross_entropy;
  table["aten::binary_cross_entropy_backward"] = lower_binary_cross_entropy_backward;
}

}  // namespace levin::xla
