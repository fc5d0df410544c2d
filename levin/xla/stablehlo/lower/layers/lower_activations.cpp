// Activations and their gradients, as aten/src/ATen/native/cpu/Activation.cpp has them: the same
// formulas, which of two sides a bound belongs to, and what a NaN gives.
#include <cmath>
#include <limits>
#include <numbers>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

void lower_relu(Lowering& at) {
  const Term x = term_of(at, 0);
  at.give(maximum(x, 0));
}

void lower_threshold(Lowering& at) {
  const Term x = term_of(at, 0);
  at.give(where(x <= at.number(1), at.number(2), x));
}

void lower_threshold_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  at.give(where(term_of(at, 1) <= at.number(2), 0, grad));
}

constexpr double kGeluInner = 0.044715;
constexpr double kGeluOuter = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)

void lower_gelu(Lowering& at) {
  const Term x = term_of(at, 0);
  if (at.text(1) == "tanh") {
    return at.give(0.5 * x * (1 + tanh(kGeluOuter * (x + kGeluInner * x * x * x))));
  }
  at.give(x * 0.5 * (1 + erf(x * (1 / std::numbers::sqrt2))));
}

void lower_gelu_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 1);
  if (at.text(2) == "tanh") {
    const Term t = tanh(kGeluOuter * (x + kGeluInner * x * x * x));
    const Term inner = kGeluOuter * (1 + 3 * kGeluInner * x * x);
    return at.give(grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner));
  }
  const Term cdf = 0.5 * (1 + erf(x * (1 / std::numbers::sqrt2)));
  const double scale = std::numbers::inv_sqrtpi / std::numbers::sqrt2;  // 1 / sqrt(2 pi)
  at.give(grad * (cdf + x * (scale * exp(-0.5 * x * x))));
}

void lower_silu(Lowering& at) {
  const Term x = term_of(at, 0);
  at.give(x * logistic(x));
}

void lower_mish(Lowering& at) {
  const Term x = term_of(at, 0);
  at.give(x * tanh(log1p(exp(x))));
}

/// Arguments from `first` on: alpha, scale, input_scale.
struct EluNumbers {
  double negative, positive, inner;
};
EluNumbers elu_numbers(const Lowering& at, size_t first) {
  return {at.number(first) * at.number(first + 1), at.number(first + 1), at.number(first + 2)};
}

void lower_elu(Lowering& at) {
  const Term x = term_of(at, 0);
  const auto [negative, positive, inner] = elu_numbers(at, 1);
  at.give(where(x <= 0, expm1(x * inner) * negative, x * positive));
}

/// Argument 5 is the result if argument 4 says so, else the input.
void lower_elu_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 5);
  const auto [negative, positive, inner] = elu_numbers(at, 1);
  const Term slope = at.flag(4) ? (x + negative) * inner : exp(x * inner) * (inner * negative);
  at.give(where(x <= 0, grad * slope, grad * positive));
}

void lower_leaky_relu(Lowering& at) {
  const Term x = term_of(at, 0);
  at.give(where(x > 0, x, x * at.number(1)));
}

void lower_leaky_relu_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  at.give(where(term_of(at, 1) > 0, grad, grad * at.number(2)));
}

void lower_hardtanh(Lowering& at) {
  const Term x = term_of(at, 0);
  at.give(minimum(maximum(x, at.number(1)), at.number(2)));
}

void lower_hardtanh_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 1);
  at.give(where((x <= at.number(2)) | (x >= at.number(3)), 0, grad));
}

Term hinge_of_six(const Term& x) { return minimum(maximum(x + 3, 0), 6); }

void lower_hardswish(Lowering& at) {
  const Term x = term_of(at, 0);
  at.give(x * hinge_of_six(x) / 6);
}

void lower_hardswish_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 1);
  at.give(where(x <= -3, 0, where(x < 3, grad * (x / 3 + 0.5), grad)));
}

void lower_hardsigmoid(Lowering& at) { at.give(hinge_of_six(term_of(at, 0)) / 6); }

void lower_hardsigmoid_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 1);
  // the float factor is ATen's, also for f64
  at.give(where((x > -3) & (x < 3), grad * (1.0F / 6.0F), 0));
}

void lower_softplus(Lowering& at) {
  const Term x = term_of(at, 0);
  const double beta = at.number(1);
  at.give(where(x * beta > at.number(2), x, log1p(exp(x * beta)) / beta));
}

void lower_softplus_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 1) * at.number(2);
  const Term power = exp(x);
  at.give(where(x > at.number(3), grad, grad * power / (power + 1)));
}

void lower_softshrink(Lowering& at) {
  const Term x = term_of(at, 0);
  const double bound = at.number(1);
  at.give(where(x > bound, x - bound, where(x < -bound, x + bound, x * 0)));
}

void lower_hardshrink(Lowering& at) {
  const Term x = term_of(at, 0);
  at.give(where((x >= -at.number(1)) & (x <= at.number(1)), 0, x));
}

/// Lowers the backward of softshrink and of hardshrink.
void lower_shrink_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 1);
  at.give(where((x >= -at.number(2)) & (x <= at.number(2)), 0, grad));
}

/// The second result, exp(-|x|), is what the CPU's gradient reads; this one computes it anew.
void lower_log_sigmoid(Lowering& at) {
  const Term x = term_of(at, 0);
  const Term power = exp(-abs(x));
  at.give(minimum(x, 0) - log1p(power));
  if (at.sizes(1) == power.sizes()) at.give(power);
  if (at.sizes(1) != power.sizes()) at.give(at.hlo.constant(0, at.dtype(1), at.sizes(1)));
}

void lower_log_sigmoid_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 1);
  const Term power = exp(-abs(x));
  const Term share = power / (1 + power);
  at.give(grad * where(x < 0, 1 - share, share));
}

void lower_prelu(Lowering& at) {
  const Term x = term_of(at, 0);
  at.give(where(x > 0, x, term_of(at, 1) * x));
}

void lower_prelu_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 1);
  at.give(where(x > 0, grad, term_of(at, 2) * grad));
  at.give(where(x > 0, 0, x * grad));
}

/// The halves of a dimension.
std::pair<Term, Term> halves_of(Lowering& at, size_t index, int64_t dim, at::ScalarType dtype) {
  const Hlo x = at.tensor(index, Lowering::compute_dtype(dtype));
  const Dims ones(x.sizes.size(), 1);
  Dims start(x.sizes.size(), 0);
  Dims limit = x.sizes;
  limit[dim] /= 2;
  const Hlo first = at.hlo.slice(x, start, limit, ones);
  std::swap(start[dim], limit[dim]);
  limit[dim] = x.sizes[dim];
  return {Term(at.hlo, first), Term(at.hlo, at.hlo.slice(x, start, limit, ones))};
}

void lower_glu(Lowering& at) {
  const int64_t dim = at.dim(1, static_cast<int64_t>(at.sizes().size()));
  const auto [a, b] = halves_of(at, 0, dim, at.dtype());
  at.give(a * logistic(b));
}

void lower_glu_backward(Lowering& at) {
  const int64_t dim = at.dim(2, static_cast<int64_t>(at.sizes().size()));
  const Term grad(at.hlo, at.tensor(0, Lowering::compute_dtype(at.dtype())));
  const auto [a, b] = halves_of(at, 1, dim, at.dtype());
  const Term gate = logistic(b);
  at.give(at.hlo.concatenate({grad * gate, grad * (1 - gate) * gate * a}, dim));
}

void lower_tanh_backward(Lowering& at) {
  const Term y = term_of(at, 1);
  at.give(term_of(at, 0) * (1 - y * y));
}

void lower_sigmoid_backward(Lowering& at) {
  const Term y = term_of(at, 1);
  at.give(term_of(at, 0) * (1 - y) * y);
}

/// With an epsilon, x is kept that far from 0 and 1.
void lower_logit(Lowering& at) {
  const Term x = term_of(at, 0);
  if (!at.has(1)) return at.give(log(x / (1 - x)));
  const double low = at.number(1);
  const Term kept = where(x < low, low, where(x > 1 - low, 1 - low, x));
  at.give(log(kept / (1 - kept)));
}

void lower_logit_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const Term x = term_of(at, 1);
  const double low = at.has(2) ? at.number(2) : 0;
  const double beyond = at.has(2) ? 0 : std::numeric_limits<double>::quiet_NaN();
  at.give(where((x < low) | (x > 1 - low), beyond, grad / (x * (1 - x))));
}

}  // namespace

void add_activations(LoweringTable& table) {
  table["aten::relu"] = lower_relu;
  table["aten::threshold"] = lower_threshold;
  table["aten::threshold_backward"] = lower_threshold_backward;
  table["aten::gelu"] = lower_gelu;
  table["aten::gelu_backward"] = lower_gelu_backward;
  table["aten::silu"] = lower_silu;
  table["aten::mish"] = lower_mish;
  table["aten::elu"] = lower_elu;
  table["aten::elu_backward"] = lower_elu_backward;
  table["aten::leaky_relu"] = lower_leaky_relu;
  table["aten::leaky_relu_backward"] = lower_leaky_relu_backward;
  table["aten::hardtanh"] = lower_hardtanh;
  table["aten::hardtanh_backward"] = lower_hardtanh_backward;
  table["aten::hardswish"] = lower_hardswish;
  table["aten::hardswish_backward"] = lower_hardswish_backward;
  table["aten::hardsigmoid"] = lower_hardsigmoid;
  table["aten::hardsigmoid_backward"] = lower_hardsigmoid_backward;
  table["aten::softplus"] = lower_softplus;
  table["aten::softplus_backward"] = lower_softplus_backward;
  table["aten::softshrink"] = lower_softshrink;
  table["aten::hardshrink"] = lower_hardshrink;
  table["aten::softshrink_backward"] = table["aten::hardshrink_backward"] = lower_shrink_backward;
  table["aten::log_sigmoid_forward"] = lower_log_sigmoid;
  table["aten::log_sigmoid_backward"] = lower_log_sigmoid_backward;
  table["aten::_prelu_kernel"] = lower_prelu;
  table["aten::_prelu_kernel_backward"] = lower_prelu_backward;
  table["aten::glu"] = lower_glu;
  table["aten::glu_backward"] = lower_glu_backward;
  table["aten::tanh_backward"] = lower_tanh_backward;
  table["aten::sigmoid_backward"] = lower_sigmoid_backward;
  table["aten::logit"] = lower_logit;
  table["aten::logit_backward"] = lower_logit_backward;
}

}  // namespace levin::xla
