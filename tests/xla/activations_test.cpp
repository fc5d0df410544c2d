// Activations, special functions and dropout-free noise, forward and backward.
#include "tests/xla/on_both_devices.h"

namespace {

using namespace levin::test;  // NOLINT
namespace F = torch::nn::functional;

/// Where formulas change from one piece to the next, and beyond all numbers.
OperatorTensors bounds() {
  const double infinite = std::numeric_limits<double>::infinity();
  return {at::tensor({-30.0, -3.0, -2.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 6.0, 20.0,
                      30.0, infinite, -infinite},
                     at::kDouble)};
}

OperatorCase with_gradients(OperatorCase of) {
  of.name += "Gradient";
  of.with_gradients = true;
  return of;
}

std::vector<OperatorCase> activations() {
  const auto x = drawn({{3, 4}});
  std::vector<OperatorCase> cases = {
      CASE("Relu", x, at::relu(t[0])),
      CASE("Relu6", x, at::relu6(t[0])),
      CASE("Threshold", x, at::threshold(t[0], 0.5, -1.5)),
      CASE("Gelu", x, at::gelu(t[0])),
      CASE("GeluTanh", x, at::gelu(t[0], "tanh")),
      CASE("Silu", x, at::silu(t[0])),
      CASE("Mish", x, at::mish(t[0])),
      CASE("Elu", x, at::elu(t[0], 1.5)),
      CASE("Selu", x, at::selu(t[0])),
      CASE("Celu", x, at::celu(t[0], 0.7)),
      CASE("LeakyRelu", x, at::leaky_relu(t[0], 0.1)),
      CASE("Hardtanh", x, at::hardtanh(t[0], -0.5, 1)),
      CASE("Hardswish", x, at::hardswish(t[0])),
      CASE("Hardsigmoid", x, at::hardsigmoid(t[0])),
      CASE("Softplus", x, at::softplus(t[0], 2, 1)),
      CASE("Softshrink", x, at::softshrink(t[0], 0.5)),
      CASE("Hardshrink", x, at::hardshrink(t[0], 0.5)),
      CASE("LogSigmoid", x, at::log_sigmoid(t[0])),
      CASE("Tanhshrink", x, F::tanhshrink(t[0])),
      CASE("Softsign", x, F::softsign(t[0])),
      CASE("Sigmoid", x, at::sigmoid(t[0])),
      CASE("Tanh", x, at::tanh(t[0])),
      CASE("Prelu", drawn({{2, 3, 4}, {3}}), at::prelu(t[0], t[1])),
      CASE("PreluOfOne", drawn({{2, 3}, {1}}), at::prelu(t[0], t[1])),
      CASE("Glu", drawn({{3, 4, 5}}), at::glu(t[0], 1)),
      CASE("GluOfNegativeDim", drawn({{3, 6}}), at::glu(t[0], -1)),
      CASE("RreluInEvaluation", x, at::rrelu(t[0], 0.1, 0.3, false)),
      CASE("Logit", inside({{3, 4}}), at::logit(t[0])),
      CASE("LogitWithEpsilon", inside({{3, 4}}), at::logit(t[0], 0.3)),
      CASE("EluInPlace", x,
           [&] {
             at::Tensor y = t[0].clone();
             return at::elu_(y, 1.5);
           }()),
  };
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) cases.push_back(with_gradients(cases[i]));
  return cases;
}

std::vector<OperatorCase> at_bounds() {
  return {
      CASE("Hardswish", bounds, at::hardswish(t[0])),
      CASE("HardswishBackward", bounds,
           at::hardswish_backward(at::full_like(t[0], 1.5), t[0].clamp(-30, 30))),
      CASE("HardtanhBackward", bounds, at::hardtanh_backward(at::ones_like(t[0]), t[0], -0.5, 0.5)),
      CASE("HardsigmoidBackward", bounds, at::hardsigmoid_backward(at::ones_like(t[0]), t[0])),
      CASE("Softshrink", bounds, at::softshrink(t[0], 0.5),
           at::softshrink_backward(at::ones_like(t[0]), t[0], 0.5)),
      CASE("Hardshrink", bounds, at::hardshrink(t[0], 0.5),
           at::hardshrink_backward(at::ones_like(t[0]), t[0], 0.5)),
      CASE("Softplus", bounds, at::softplus(t[0], 1, 20)),
      CASE("Gelu", bounds, at::gelu(t[0].clamp(-30, 30))),
      CASE("LogSigmoid", bounds, at::log_sigmoid(t[0])),
      CASE("Elu", bounds, at::elu(t[0]),
           at::elu_backward(at::ones_like(t[0]), 1, 1, 1, false, t[0])),
      CASE("LogitBackward", inside({{5}}), at::logit_backward(t[0], t[0] * 2 - 0.5),
           at::logit_backward(t[0], t[0], 0.4)),
      CASE("ThresholdBackward", bounds, at::threshold_backward(at::ones_like(t[0]), t[0], 0.5)),
      CASE("LeakyReluBackward", bounds,
           at::leaky_relu_backward(at::ones_like(t[0]), t[0], 0.25, false)),
      CASE("ReluOfNan", bounds, at::relu(t[0] / t[0].clamp(-1, 1)), at::relu(at::log(t[0]))),
  };
}

std::vector<OperatorCase> shapes() {
  return {
      CASE("ReluOfOne", drawn({{}}), at::relu(t[0])),
      CASE("ReluOfNone", drawn({{0, 3}}), at::relu(t[0])),
      CASE("GeluOfNone", drawn({{0, 3}}), at::gelu(t[0])),
      CASE("ReluInPlace", drawn({{2, 3}}), t[0].clone().relu_()),
      CASE("ReluOfTransposed", drawn({{2, 3}}), at::relu(t[0].t()), at::gelu(t[0].t())),
      CASE("OutArgument", drawn({{2, 3}}),
           [&] {
             at::Tensor out = at::zeros_like(t[0]);
             at::hardtanh_out(out, t[0], -1, 1);
             return out;
           }()),
      CASE("IntoAView", drawn({{4, 3}}),
           [&] {
             at::Tensor all = t[0].clone();
             all.slice(0, 1, 3).relu_();
             all.select(1, 0).tanh_();
             return all;
           }()),
  };
}

std::vector<OperatorCase> special() {
  std::vector<OperatorCase> cases = {
      CASE("Erf", drawn({{50}}), at::erf(t[0])),
      CASE("Erfc", drawn({{50}}), at::erfc(t[0])),
      CASE("Erfinv", inside({{50}}), at::erfinv(t[0] * 2 - 1)),
      CASE("Lgamma", inside({{50}}), at::lgamma(t[0] * 5)),
      CASE("Digamma", inside({{50}}), at::digamma(t[0] * 5)),
      CASE("Asin", inside({{20}}), at::asin(t[0]), at::acos(t[0]), at::atan(t[0])),
      CASE("Sinh", drawn({{20}}), at::sinh(t[0]), at::cosh(t[0]), at::asinh(t[0])),
      CASE("Acosh", inside({{20}}), at::acosh(t[0] + 1), at::atanh(t[0])),
      CASE("Xlogy", inside({{20}, {20}}), at::xlogy(t[0], t[1]), at::special_xlog1py(t[0], t[1])),
      CASE("XlogyOfZero", given([] {
             return OperatorTensors{at::zeros({3}, at::kDouble), at::zeros({3}, at::kDouble)};
           }),
           at::xlogy(t[0], t[1])),
      CASE("Logaddexp", drawn({{20}, {4, 20}}), at::logaddexp(t[0], t[1])),
      CASE("Hypot", drawn({{20}, {20}}), at::hypot(t[0], t[1])),
      CASE("Copysign", drawn({{20}, {20}}), at::copysign(t[0], t[1]), at::copysign(t[0], -0.0)),
      CASE("Sinc", drawn({{20}}), at::sinc(t[0])),
      CASE("Frac", drawn({{20}}), at::frac(t[0])),
      CASE("Entropy", inside({{20}}), at::special_entr(t[0] - 0.1)),
      CASE("Degrees", drawn({{20}}), at::deg2rad(t[0]), at::rad2deg(t[0])),
      CASE("Heaviside", drawn({{20}, {20}}), at::heaviside(at::round(t[0]), t[1])),
      CASE("RoundToDecimals", drawn({{20}}), at::round(t[0], 2)),
  };
  // A 16-bit number near a pole, or halfway between two, is far from what it stands for.
  for (OperatorCase& of : cases) of.dtypes = kWide;
  cases.push_back(CASE("Polygamma", inside({{20}}), at::polygamma(1, t[0] * 3)));
  cases.back().dtypes = kWide.first(1);  // ATen's has 9 digits
  return cases;
}

class Activations : public testing::TestWithParam<OperatorCase> {};
TEST_P(Activations, EqualAten) { expect_same_on_both(GetParam()); }

std::string name_of(const testing::TestParamInfo<OperatorCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(OfNumbers, Activations, testing::ValuesIn(activations()), name_of);
INSTANTIATE_TEST_SUITE_P(AtBounds, Activations, testing::ValuesIn(at_bounds()), name_of);
INSTANTIATE_TEST_SUITE_P(OfShapes, Activations, testing::ValuesIn(shapes()), name_of);
INSTANTIATE_TEST_SUITE_P(Special, Activations, testing::ValuesIn(special()), name_of);

}  // namespace
