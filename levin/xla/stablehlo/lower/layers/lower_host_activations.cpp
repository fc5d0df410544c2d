// Activations and a loss that LibTorch takes apart for the device, as
// aten/src/ATen/native/{Activation.cpp, cpu/Activation.cpp, Loss.cpp} have them.
#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

Term softplus_of(const Term& x) { return maximum(x, 0) + log1p(exp(-abs(x))); }

/// self, alpha
void lower_celu(Lowering& at) {
  const Term x = term_of(at, 0);
  const double alpha = at.number(1);
  at.give(where(x > 0, x, alpha * expm1(x / alpha)));
}

/// grad, self
void lower_silu_backward(Lowering& at) {
  const Term grad = term_of(at, 0), x = term_of(at, 1);
  const Term s = logistic(x);
  at.give(grad * s * (1 + x * (1 - s)));
}

/// grad, self
void lower_mish_backward(Lowering& at) {
  const Term grad = term_of(at, 0), x = term_of(at, 1);
  const Term t = tanh(softplus_of(x));
  at.give(grad * (t + x * logistic(x) * (1 - t * t)));
}

/// grad, self, noise, lower, upper, training, self_is_result
void lower_rrelu_backward(Lowering& at) {
  const Term grad = term_of(at, 0);
  const double lower = at.number(3), upper = at.number(4);
  if (at.flag(5) && upper - lower > 1e-6) return at.give(grad * term_of(at, 2));
  at.give(where(term_of(at, 1) > 0, grad, grad * ((lower + upper) / 2)));
}

/// self, target, weight, pos_weight, reduction
void lower_cross_entropy_with_logits(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.dtype());
  const Term x(at.hlo, at.tensor(0, in));
  const auto argument = [&](size_t index) {
    return Term(at.hlo, at.hlo.expand(at.tensor(index, in), x.sizes()));
  };
  const Term target = argument(1);
  const Term minus_log_sigmoid = softplus_of(-x);
  Term each = (1 - target) * x;
  each =
      each + (at.has(3) ? ((argument(3) - 1) * target + 1) * minus_log_sigmoid : minus_log_sigmoid);
  if (at.has(2)) each = each * argument(2);
  give_loss(at, each, at.integer(4));
}

}  // namespace

void add_host_activations(LoweringTable& table) {
  table["aten::celu"] = lower_celu;
  table["aten::silu_backward"] = lower_silu_backward;
  table["aten::mish_backward"] = lower_mish_backward;
  table["aten::rrelu_with_noise_backward"] = lower_rrelu_backward;
  table["aten::binary_cross_entropy_with_logits"] = lower_cross_entropy_with_logits;
}

}  // namespace levin::xla
