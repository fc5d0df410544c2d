// Element-wise operators, views and writes through them, reductions, softmax, products of matrices.
#include "tests/xla/on_both_devices.h"

namespace {

using namespace levin::test;  // NOLINT

OperatorTensors whole_pair() {
  return {torch::randint(-9, 9, {3, 4}, at::kDouble), torch::randint(1, 5, {3, 4}, at::kDouble)};
}
OperatorTensors masks() { return {torch::rand({3, 4}) > 0.5, torch::rand({4}) > 0.5}; }

std::vector<OperatorCase> elementwise_operators() {
  const auto pair = drawn({{3, 4}, {4}});
  std::vector<OperatorCase> any = {
      CASE("Add", pair, t[0] + t[1], t[0] + 2, at::add(t[0], t[1], 3), 1 + t[0]),
      CASE("Sub", drawn({{3, 1}, {4}}),
           at::sub(t[0].to(at::promote_types(t[0].scalar_type(), at::kInt)), t[1]),
           at::rsub(t[0].to(at::promote_types(t[0].scalar_type(), at::kInt)), 3)),
      CASE("Mul", pair, t[0] * t[1], t[0] * 3, at::square(t[0])),
      CASE("Compare", pair, t[0] == t[1], t[0] != t[1], t[0]<t[1], t[0] <= t[1], t[0]> t[1],
           t[0] >= 0),
      CASE("Logical", pair, at::logical_and(t[0], t[1]), at::logical_or(t[0], t[1]),
           at::logical_xor(t[0], t[1]), at::logical_not(t[0])),
      CASE("Convert", pair, t[0].to(at::kDouble), t[0].to(at::kLong), t[0].to(at::kBool),
           t[0].to(at::kHalf)),
      CASE("OfNone", drawn({{0, 4}, {4}}), t[0] + t[1], t[0] * 2, t[0] == t[1]),
      CASE("OfNoDims", drawn({{}, {}}), t[0] + t[1], t[0] * t[1]),
      CASE("Maximum", pair, at::maximum(t[0], t[1]), at::minimum(t[0], t[1])),
      CASE("NanAndInf", pair, at::isnan(t[0]), at::isinf(t[0]), at::isfinite(t[0])),
  };
  for (OperatorCase& of : any) of.dtypes = of.name == "Sub" ? kNumbers : kAnything;
  std::vector<OperatorCase> numbers = {
      CASE("Neg", pair, -t[0], at::abs(t[0]), at::sign(t[0]), at::sgn(t[0])),
      CASE("Clamp", pair, at::clamp(t[0], -1, 1), at::clamp_min(t[0], 0), at::clamp_max(t[0], t[1]),
           at::clamp(t[0], t[1], t[1] + 1)),
      CASE("Remainder", whole_pair, at::remainder(t[0], t[1]), at::fmod(t[0], t[1]),
           at::floor_divide(t[0], t[1]), at::div(t[0], t[1], "floor"), at::div(t[0], t[1], "trunc"),
           at::remainder(t[0], -3), at::fmod(t[0], 2)),
      CASE("Div", whole_pair, at::div(t[0], t[1]), at::div(t[0], 4)),
      CASE("Addcmul", drawn({{3, 4}, {4}, {3, 1}}), at::addcmul(t[0], t[1], t[2], 2)),
      CASE("Pow", whole_pair, at::pow(t[0], 2), at::pow(t[0], 3), at::pow(t[1], t[1])),
      CASE("Where", pair, at::where(t[0] > 0, t[0], t[1]), at::where(t[0] > 0, t[0], 1)),
      CASE("InPlace", pair,
           [&] {
             at::Tensor x = t[0].clone();
             x.add_(t[1]).mul_(2).sub_(1).clamp_(-3, 3).neg_();
             return x;
           }()),
      CASE("OutArguments", pair,
           [&] {
             at::Tensor out = at::zeros_like(t[0]);
             at::add_out(out, t[0], t[1]);
             at::mul_out(out, out, t[0]);
             return out;
           }()),
      CASE("Lists", drawn({{3, 4}, {4}, {3, 4}, {4}}),
           [&] {
             std::vector<at::Tensor> xs = {t[0].clone(), t[1].clone()};
             const std::vector<at::Tensor> ys = {t[2], t[3]};
             at::_foreach_add_(xs, ys, 2);
             at::_foreach_mul_(xs, 3);
             at::_foreach_addcmul_(xs, ys, ys, 2);
             return xs;
           }()),
  };
  for (OperatorCase& of : numbers) of.dtypes = kNumbers;
  std::vector<OperatorCase> floats = {
      CASE("Exponents", pair, at::exp(t[0]), at::expm1(t[0]), at::exp2(t[0])),
      CASE("Logarithms", inside({{3, 4}}), at::log(t[0]), at::log1p(t[0]), at::log2(t[0]),
           at::log10(t[0])),
      CASE("Roots", inside({{3, 4}}), at::sqrt(t[0]), at::rsqrt(t[0]), at::reciprocal(t[0])),
      CASE("Trigonometry", pair, at::sin(t[0]), at::cos(t[0]), at::tan(at::tanh(t[0])),
           at::atan2(t[0], t[1])),
      CASE("Rounding", pair, at::floor(t[0]), at::ceil(t[0]), at::round(t[0]), at::trunc(t[0])),
      CASE("PowOfFloats", inside({{3, 4}, {3, 4}}), at::pow(t[0], t[1]), at::pow(t[0], 0.5),
           at::pow(t[0], -1), at::pow(t[0], 1.7), at::pow(2, t[0])),
      CASE("Lerp", drawn({{3, 4}, {3, 4}, {4}}), at::lerp(t[0], t[1], 0.3),
           at::lerp(t[0], t[1], t[2])),
      CASE("Addcdiv", inside({{3, 4}, {3, 4}, {3, 4}}), at::addcdiv(t[0], t[1], t[2], 0.5)),
      CASE("NanToNum", drawn({{3, 4}}), at::nan_to_num(at::log(t[0])),
           at::nan_to_num(at::log(t[0]), 1, 2, 3)),
      CASE("ListsOfFloats", inside({{3, 4}, {4}, {3, 4}, {4}}),
           [&] {
             std::vector<at::Tensor> xs = {t[0].clone(), t[1].clone()};
             const std::vector<at::Tensor> ys = {t[2], t[3]};
             at::_foreach_addcdiv_(xs, ys, ys, 2);
             at::_foreach_sqrt_(xs);
             at::_foreach_lerp_(xs, ys, 0.3);
             std::vector<at::Tensor> norms = at::_foreach_norm(xs);
             xs.insert(xs.end(), norms.begin(), norms.end());
             return xs;
           }()),
  };
  for (OperatorCase& of : floats)
    of.with_gradients =
        !of.name.starts_with("Lists") && of.name != "NanToNum" && of.name != "Rounding";
  std::vector<OperatorCase> integers = {
      CASE("Bits", whole_pair, at::bitwise_and(t[0], t[1]), at::bitwise_or(t[0], 5),
           at::bitwise_xor(t[0], t[1]), at::bitwise_not(t[0])),
      CASE("BitsOfMasks", masks, at::bitwise_and(t[0], t[1]), t[0] | t[1], at::bitwise_not(t[0]),
           t[0] ^ t[1]),
  };
  for (OperatorCase& of : integers) of.dtypes = kIntegers;
  std::vector<OperatorCase> cases;
  for (const auto& part : {any, numbers, floats, integers})
    cases.insert(cases.end(), part.begin(), part.end());
  return cases;
}

std::vector<OperatorCase> of_mixed_dtypes() {
  return {CASE("Promotes", drawn({{3}}), t[0] + at::ones({3}, t[0].options().dtype(at::kInt)),
               t[0] * at::ones({2, 3}, t[0].options().dtype(at::kDouble)),
               at::ones({3}, t[0].options().dtype(at::kLong)) / 2,
               at::arange(3, t[0].options().dtype(at::kLong)) + 0.5,
               t[0] + at::scalar_tensor(2.5, at::TensorOptions(at::kDouble)),
               t[0].mul(at::scalar_tensor(3, at::TensorOptions(at::kLong))))};
}

std::vector<OperatorCase> views_and_writes() {
  const auto x = drawn({{4, 5, 6}});
  std::vector<OperatorCase> cases = {
      CASE("Reshapes", x, t[0].view({20, 6}), t[0].reshape({2, -1}), t[0].unsqueeze(1),
           t[0].unsqueeze(0).squeeze(0), t[0].flatten()),
      CASE("Permutes", x, t[0].transpose(0, 2), t[0].permute({1, -1, 0}), t[0].select(0, 1).t(),
           t[0].transpose(1, 2).reshape({4, 30})),
      CASE("Slices", x, t[0].slice(1, 1, 4), t[0].slice(2, -5, 100, 2), t[0].select(1, -1),
           t[0].narrow(0, 1, 2), t[0].slice(0, 3, 1)),
      CASE("Expand", x, t[0].select(0, 0).expand({3, 5, 6}),
           t[0].slice(1, 0, 1).expand({4, 5, 6}).contiguous()),
      CASE("Split", x, t[0].split(2, 1), t[0].split_with_sizes({1, 3}, 0), t[0].unbind(0),
           t[0].chunk(4, 2)),
      CASE("Cat", x, at::cat({t[0], t[0]}, 1), at::stack({t[0], t[0]}, -1),
           at::cat({t[0].slice(0, 0, 0), t[0]})),
      CASE("Pad", x, at::constant_pad_nd(t[0], {1, 2, 0, 1}, 3),
           at::constant_pad_nd(t[0], {-1, 2})),
      CASE("ViewsInPlace", drawn({{4, 4}}), t[0].clone().t_(), t[0].clone().transpose_(0, 1) + 1,
           t[0].clone().unsqueeze_(1), t[0].clone().unsqueeze_(1).squeeze_(1) * 2,
           t[0].clone().swapaxes_(0, 1).select(0, 1), t[0].clone().swapdims_(1, 0).mul_(3),
           t[0].clone().as_strided_({3, 2}, {4, 1}, 1).relu(),
           t[0].clone().squeeze_().t_().add_(t[0])),
      CASE("AsStrided", x, t[0].contiguous().as_strided({3, 2}, {7, 2}, 4),
           t[0].contiguous().as_strided({5, 4, 6}, {6, 30, 1}),
           t[0].contiguous().as_strided({4, 3}, {6, 0}, 2)),
      CASE("Diagonal", x, t[0].diagonal(1, 0, 2), at::diag_embed(t[0].select(0, 0)),
           t[0].select(0, 1).trace()),
      CASE("WritesThroughSlices", x,
           [&] {
             at::Tensor y = t[0].clone();
             y.slice(1, 1, 4, 2).mul_(2);
             y.select(0, 2).add_(1);
             y.select(0, 1).select(0, 3).fill_(7);
             y.transpose(0, 1).select(0, 0).copy_(t[0].select(1, 1));
             y.view({20, 6}).select(0, 5).zero_();
             return y;
           }()),
      CASE("WritesThroughDiagonals", x,
           [&] {
             at::Tensor y = t[0].clone();
             y.diagonal(0, 1, 2).fill_(9);
             y.diagonal(-1, 0, 1).mul_(3);
             return y;
           }()),
      CASE("WritesThroughStrides", x,
           [&] {
             at::Tensor y = t[0].contiguous().clone();
             y.as_strided({3, 2}, {20, 3}, 1).fill_(4);
             y.unfold(2, 2, 3).select(3, 0).add_(1);
             y.split(2, 1)[1].neg_();
             return listed(y, y.select(1, 3));
           }()),
      CASE("SeesWrites", x,
           [&] {
             at::Tensor y = t[0].clone();
             const at::Tensor view = y.select(0, 1).t();
             y.add_(1);
             view.mul_(2);
             return listed(view, y, y.sum());
           }()),
  };
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    OperatorCase more = cases[i];
    more.name += "Gradient";
    more.with_gradients = true;
    more.dtypes = kWide;
    cases[i].dtypes = kNumbers;
    if (more.name == "WritesThroughStridesGradient")
      continue;  // autograd refuses writes into a split
    cases.push_back(more);
  }
  return cases;
}

std::vector<OperatorCase> reductions() {
  const auto x = drawn({{3, 4, 5}});
  std::vector<OperatorCase> numbers = {
      CASE("Sum", x, at::sum(t[0]), at::sum(t[0], {1}), at::sum(t[0], {0, -1}, true),
           at::sum(t[0], {1}, false, at::kDouble)),
      CASE("Prod", x, at::prod(t[0].select(0, 0), 1), at::prod(t[0].select(0, 0).select(0, 0))),
      CASE("Max", x, at::max(t[0]), at::amax(t[0], {0, 2}), at::amin(t[0], {1}, true),
           at::max(t[0], 1), at::min(t[0], 2, true), at::min(t[0])),
      CASE("Argmax", x, at::argmax(t[0]), at::argmin(t[0], 1), at::argmax(t[0], -1, true)),
      CASE("OfNone", drawn({{0, 3}}), at::sum(t[0]), at::sum(t[0], {0}), at::prod(t[0], 0),
           at::amax(t[0], {1})),
      CASE("OfOne", drawn({{}}), at::sum(t[0]), at::amax(t[0]), at::argmax(t[0]), at::max(t[0], 0)),
      CASE("Cumsum", x, at::cumsum(t[0], 1), at::cumsum(t[0], -1)),
      CASE("CountNonzero", x, at::count_nonzero(t[0])),
  };
  for (OperatorCase& of : numbers) of.dtypes = kNumbers;
  std::vector<OperatorCase> any = {CASE("AnyAll", x, at::any(t[0] > 3), at::all(t[0] > 3, 1),
                                        at::any(t[0], 0, true), at::all(t[0]))};
  any[0].dtypes = kAnything;
  std::vector<OperatorCase> floats = {
      CASE("Mean", x, at::mean(t[0]), at::mean(t[0], {0, 2}), at::mean(t[0], {1}, true)),
      CASE("Var", x, at::var(t[0], at::OptionalIntArrayRef({1})), at::std(t[0], {0, 1}),
           at::var(t[0], at::OptionalIntArrayRef({2}), 0, true), at::std(t[0]),
           at::var_mean(t[0], at::OptionalIntArrayRef({1}))),
      CASE("Norm", x, at::norm(t[0]), at::norm(t[0], 1), at::linalg_vector_norm(t[0], 3, {1}),
           at::linalg_vector_norm(t[0], INFINITY), at::linalg_vector_norm(t[0], 0, {1}),
           at::linalg_vector_norm(t[0], 2, at::OptionalIntArrayRef({0, 1}), true)),
      CASE("Softmax", x, at::softmax(t[0], 1), at::log_softmax(t[0], -1), at::softmax(t[0], 0)),
      CASE("SoftmaxOfOne", drawn({{}}), at::softmax(t[0], 0), at::log_softmax(t[0], 0)),
      CASE("Nansum", x, at::nansum(at::log(t[0]).nan_to_num(0, 0, 0))),
  };
  const size_t count = floats.size();
  for (size_t i = 0; i < count; ++i) {
    OperatorCase more = floats[i];
    more.name += "Gradient";
    more.with_gradients = true;
    more.dtypes = kWide;
    floats.push_back(more);
  }
  std::vector<OperatorCase> cases;
  for (const auto& part : {numbers, any, floats})
    cases.insert(cases.end(), part.begin(), part.end());
  return cases;
}

std::vector<OperatorCase> products() {
  std::vector<OperatorCase> cases = {
      CASE("Mm", drawn({{3, 4}, {4, 5}}), at::mm(t[0], t[1]), at::mm(t[1].t(), t[0].t()),
           at::matmul(t[0], t[1])),
      CASE("Bmm", drawn({{2, 3, 4}, {2, 4, 5}}), at::bmm(t[0], t[1]),
           at::matmul(t[0], t[1].select(0, 0))),
      CASE("Addmm", drawn({{5}, {3, 4}, {4, 5}}), at::addmm(t[0], t[1], t[2]),
           at::addmm(t[0], t[1], t[2], 0.5, 2), at::addmm(t[0], t[1], t[2], 0)),
      CASE("Baddbmm", drawn({{5}, {2, 3, 4}, {2, 4, 5}}), at::baddbmm(t[0], t[1], t[2], 0.5, 2)),
      CASE("Addmv", drawn({{3}, {3, 4}, {4}}), at::addmv(t[0], t[1], t[2]), at::mv(t[1], t[2]),
           at::dot(t[2], t[2]), at::outer(t[0], t[2])),
      CASE("Linear", drawn({{2, 3, 4}, {5, 4}, {5}}), at::linear(t[0], t[1], t[2]),
           at::linear(t[0], t[1])),
      CASE("Einsum", drawn({{2, 3, 4}, {4, 5}}), at::einsum("bij,jk->bik", {t[0], t[1]})),
      CASE("MmOfNone", drawn({{0, 4}, {4, 5}}), at::mm(t[0], t[1])),
      CASE("EuclideanDistance", drawn({{6, 4}, {5, 4}}), at::_euclidean_dist(t[0], t[1])),
  };
  for (OperatorCase& of : cases) {
    of.with_gradients = true;
    of.dtypes = kWide;
  }
  return cases;
}

class Operators : public testing::TestWithParam<OperatorCase> {};
TEST_P(Operators, EqualAten) { expect_same_on_both(GetParam()); }

std::string operator_name(const testing::TestParamInfo<OperatorCase>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Elementwise, Operators, testing::ValuesIn(elementwise_operators()),
                         operator_name);
INSTANTIATE_TEST_SUITE_P(Mixed, Operators, testing::ValuesIn(of_mixed_dtypes()), operator_name);
INSTANTIATE_TEST_SUITE_P(Views, Operators, testing::ValuesIn(views_and_writes()), operator_name);
INSTANTIATE_TEST_SUITE_P(Reductions, Operators, testing::ValuesIn(reductions()), operator_name);
INSTANTIATE_TEST_SUITE_P(Products, Operators, testing::ValuesIn(products()), operator_name);

}  // namespace
