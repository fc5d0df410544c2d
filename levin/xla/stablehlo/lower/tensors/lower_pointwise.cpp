// Element-wise arithmetic, comparisons and conversions, with ATen's broadcasts and promotions.
#include <ATen/core/ivalue.h>

#include <array>
#include <numbers>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

using OfOne = std::function<Hlo(Lowering&, const Hlo&)>;
using OfTwo = std::function<Hlo(Lowering&, const Hlo&, const Hlo&)>;

Hlo real_of(Lowering& at, size_t index, at::ScalarType dtype) {
  return at.hlo.expand(at.tensor(index, Lowering::compute_dtype(dtype)), at.sizes());
}

/// f(x) in the dtype of the result, or what ATen computes that in.
LowerFunction of_one(OfOne f) {
  return [f = std::move(f)](Lowering& at) { at.give(f(at, real_of(at, 0, at.dtype()))); };
}

LowerFunction of_one(std::string_view name) {
  return of_one([name](Lowering& at, const Hlo& x) { return at.hlo.unary(name, x); });
}

LowerFunction of_two(OfTwo f) {
  return [f = std::move(f)](Lowering& at) {
    const at::ScalarType dtype = at.promoted({0, 1});
    const bool is_wider =
        at::promoteTypes(dtype, at.dtype()) == at.dtype() && at::isFloatingType(at.dtype());
    const at::ScalarType in = is_wider ? at.dtype() : dtype;
    at.give(f(at, real_of(at, 0, in), real_of(at, 1, in)));
  };
}

LowerFunction of_two(std::string_view name) {
  return of_two(
      [name](Lowering& at, const Hlo& a, const Hlo& b) { return at.hlo.binary(name, a, b); });
}

LowerFunction comparison(std::string_view direction) {
  return [direction](Lowering& at) {
    const at::ScalarType dtype = at.promoted({0, 1});
    const auto in = dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
    at.give(at.hlo.compare(direction, real_of(at, 0, in), real_of(at, 1, in)));
  };
}

/// add and sub: b is scaled by alpha.
LowerFunction scaled(std::string_view name) {
  return [name](Lowering& at) {
    const bool is_logical = at.dtype() == at::kBool;
    const at::ScalarType in = Lowering::compute_dtype(at.promoted({0, 1}));
    const Hlo a = real_of(at, 0, in);
    Hlo b = real_of(at, 1, in);
    const bool has_alpha = at.has(2) && !at.is_one(2);
    if (has_alpha) b = at.hlo.binary("multiply", b, at.spread(at.scalar(2, in), b));
    at.give(at.hlo.binary(is_logical ? "or" : name, a, b));
  };
}

Hlo floor_divide(Lowering& at, const Hlo& a, const Hlo& b) {
  const Hlo quotient = at.hlo.binary("divide", a, b);
  if (at::isFloatingType(a.dtype)) return at.hlo.unary("floor", quotient);
  // Toward zero so far: one less where a remainder has another sign than the divisor.
  const Hlo rest = at.hlo.binary("remainder", a, b);
  const Hlo zero = at.like(0, a);
  const Hlo has_rest = at.hlo.compare("NE", rest, zero);
  const Hlo differs =
      at.hlo.compare("NE", at.hlo.compare("LT", rest, zero), at.hlo.compare("LT", b, zero));
  const Hlo less = at.hlo.binary("subtract", quotient, at.like(1, a));
  return at.hlo.select(at.hlo.binary("and", has_rest, differs), less, quotient);
}

void lower_div_mode(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.promoted({0, 1}));
  const Hlo a = real_of(at, 0, at.has(2) ? in : at.dtype());
  const Hlo b = real_of(at, 1, at.has(2) ? in : at.dtype());
  if (at.has(2) && at.text(2) == "floor") return at.give(floor_divide(at, a, b));
  const Hlo quotient = at.hlo.binary("divide", a, b);
  if (!at.has(2) || !at::isFloatingType(a.dtype)) return at.give(quotient);
  const Hlo magnitude = at.hlo.unary("floor", at.hlo.unary("abs", quotient));
  at.give(at.hlo.binary("multiply", at.hlo.unary("sign", quotient), magnitude));
}

/// The remainder has the divisor's sign, as in Python.
Hlo remainder(Lowering& at, const Hlo& a, const Hlo& b) {
  const Hlo rest = at.hlo.binary("remainder", a, b);
  const Hlo zero = at.like(0, a);
  const Hlo has_rest = at.hlo.compare("NE", rest, zero);
  const Hlo differs =
      at.hlo.compare("NE", at.hlo.compare("LT", rest, zero), at.hlo.compare("LT", b, zero));
  return at.hlo.select(at.hlo.binary("and", has_rest, differs), at.hlo.binary("add", rest, b),
                       rest);
}

/// torch.clamp; bounds are numbers or tensors, either may be missing, NaN stays.
void lower_clamp(Lowering& at) {
  Hlo x = real_of(at, 0, at.dtype());
  if (at.has(1)) x = at.hlo.binary("maximum", x, real_of(at, 1, at.dtype()));
  if (at.has(2)) x = at.hlo.binary("minimum", x, real_of(at, 2, at.dtype()));
  at.give(x);
}

void lower_where(Lowering& at) {
  const Hlo condition = at.hlo.expand(at.tensor(0, at::kBool), at.sizes());
  at.give(at.hlo.select(condition, at.hlo.expand(at.tensor(1, at.dtype()), at.sizes()),
                        at.hlo.expand(at.tensor(2, at.dtype()), at.sizes())));
}

void lower_masked_fill(Lowering& at) {
  const Hlo mask = at.hlo.expand(at.tensor(1, at::kBool), at.sizes());
  at.give(at.hlo.select(mask, at.hlo.expand(at.tensor(2, at.dtype()), at.sizes()),
                        at.hlo.expand(at.tensor(0), at.sizes())));
}

/// a + value * (b op c)
LowerFunction added(std::string_view name) {
  return [name](Lowering& at) {
    const at::ScalarType in = Lowering::compute_dtype(at.dtype());
    const Hlo term = at.hlo.binary(name, real_of(at, 1, in), real_of(at, 2, in));
    const Hlo value = at.spread(at.scalar(3, in), term);
    at.give(at.hlo.binary("add", real_of(at, 0, in), at.hlo.binary("multiply", value, term)));
  };
}

void lower_lerp(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.dtype());
  const Hlo start = real_of(at, 0, in);
  const Hlo way = at.hlo.binary("subtract", real_of(at, 1, in), start);
  const Hlo weight = real_of(at, 2, in);
  at.give(at.hlo.binary("add", start, at.hlo.binary("multiply", weight, way)));
}

/// Exact for small whole exponents, as ATen.
void lower_pow(Lowering& at) {
  const at::ScalarType in = Lowering::compute_dtype(at.dtype());
  const Hlo x = real_of(at, 0, in);
  const auto* constant = std::get_if<graph::Constant>(&at.node.arguments()[1]);
  if (constant != nullptr && (*constant)->isScalar()) {
    const double exponent = at.number(1);
    if (exponent == 0.5) return at.give(at.hlo.unary("sqrt", x));
    if (exponent == 1) return at.give(x);
    if (exponent == 2) return at.give(at.hlo.binary("multiply", x, x));
    if (exponent == 3) {
      return at.give(at.hlo.binary("multiply", at.hlo.binary("multiply", x, x), x));
    }
    if (exponent == -1) return at.give(at.hlo.binary("divide", at.like(1, x), x));
    return at.give(at.hlo.binary("power", x, at.spread(at.hlo.constant(exponent, in), x)));
  }
  at.give(at.hlo.binary("power", x, real_of(at, 1, in)));
}

void lower_copy(Lowering& at) { at.give(at.hlo.expand(at.tensor(1, at.dtype()), at.sizes())); }
void lower_same(Lowering& at) { at.give(at.tensor(0)); }

Hlo through(Lowering& at, const Hlo& x, double factor, std::string_view name) {
  const Hlo scaled = at.hlo.binary("multiply", x, at.like(factor, x));
  return at.hlo.unary(name, scaled);
}

void add_unary(LoweringTable& table) {
  for (const auto& [name, hlo] : std::initializer_list<std::pair<std::string_view, const char*>>{
           {"aten::abs", "abs"},
           {"aten::ceil", "ceil"},
           {"aten::cos", "cosine"},
           {"aten::exp", "exponential"},
           {"aten::expm1", "exponential_minus_one"},
           {"aten::floor", "floor"},
           {"aten::log", "log"},
           {"aten::log1p", "log_plus_one"},
           {"aten::neg", "negate"},
           {"aten::round", "round_nearest_even"},
           {"aten::rsqrt", "rsqrt"},
           {"aten::sgn", "sign"},
           {"aten::sign", "sign"},
           {"aten::sin", "sine"},
           {"aten::sqrt", "sqrt"},
           {"aten::tan", "tan"},
           {"aten::tanh", "tanh"},
           {"aten::sigmoid", "logistic"},
           {"aten::bitwise_not", "not"}}) {
    table[name] = of_one(hlo);
  }
  table["aten::reciprocal"] =
      of_one([](Lowering& at, const Hlo& x) { return at.hlo.binary("divide", at.like(1, x), x); });
  table["aten::exp2"] = of_one(
      [](Lowering& at, const Hlo& x) { return through(at, x, std::numbers::ln2, "exponential"); });
  table["aten::log2"] = of_one([](Lowering& at, const Hlo& x) {
    return at.hlo.binary("multiply", at.hlo.unary("log", x), at.like(std::numbers::log2e, x));
  });
  table["aten::log10"] = of_one([](Lowering& at, const Hlo& x) {
    return at.hlo.binary("multiply", at.hlo.unary("log", x), at.like(std::numbers::log10e, x));
  });
  table["aten::trunc"] = of_one([](Lowering& at, const Hlo& x) {
    const Hlo magnitude = at.hlo.unary("floor", at.hlo.unary("abs", x));
    return at.hlo.binary("multiply", at.hlo.unary("sign", x), magnitude);
  });
  table["aten::logical_not"] = [](Lowering& at) {
    at.give(at.hlo.unary("not", at.tensor(0, at::kBool)));
  };
}

void add_binary(LoweringTable& table) {
  table["aten::add.Tensor"] = table["aten::add.Scalar"] = scaled("add");
  table["aten::sub.Tensor"] = table["aten::sub.Scalar"] = scaled("subtract");
  table["aten::rsub.Tensor"] = table["aten::rsub.Scalar"] = [](Lowering& at) {
    const at::ScalarType in = Lowering::compute_dtype(at.dtype());
    const Hlo a = real_of(at, 0, in);
    const Hlo scaled_a = at.hlo.binary("multiply", a, at.spread(at.scalar(2, in), a));
    at.give(at.hlo.binary("subtract", real_of(at, 1, in), scaled_a));
  };
  table["aten::mul.Tensor"] = table["aten::mul.Scalar"] =
      of_two([](Lowering& at, const Hlo& a, const Hlo& b) {
        return at.hlo.binary(a.dtype == at::kBool ? "and" : "multiply", a, b);
      });
  table["aten::div.Tensor"] = table["aten::div.Scalar"] = of_two("divide");
  table["aten::div.Tensor_mode"] = table["aten::div.Scalar_mode"] = lower_div_mode;
  table["aten::floor_divide"] = table["aten::floor_divide.Scalar"] = of_two(floor_divide);
  table["aten::remainder.Tensor"] = table["aten::remainder.Scalar"] = of_two(remainder);
  table["aten::fmod.Tensor"] = table["aten::fmod.Scalar"] = of_two("remainder");
  table["aten::maximum"] = of_two("maximum");
  table["aten::minimum"] = of_two("minimum");
  table["aten::atan2"] = of_two("atan2");
  for (const auto& [names, hlo] :
       std::initializer_list<std::pair<std::array<std::string_view, 2>, std::string_view>>{
           {{"aten::bitwise_and.Tensor", "aten::bitwise_and.Scalar"}, "and"},
           {{"aten::bitwise_or.Tensor", "aten::bitwise_or.Scalar"}, "or"},
           {{"aten::bitwise_xor.Tensor", "aten::bitwise_xor.Scalar"}, "xor"}}) {
    for (const std::string_view name : names) table[name] = of_two(hlo);
  }
  for (const auto& [name, hlo] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"aten::logical_and", "and"},
           {"aten::logical_or", "or"},
           {"aten::logical_xor", "xor"}}) {
    table[name] = [hlo](Lowering& at) {
      at.give(at.hlo.binary(hlo, at.hlo.expand(at.tensor(0, at::kBool), at.sizes()),
                            at.hlo.expand(at.tensor(1, at::kBool), at.sizes())));
    };
  }
}

void add_comparisons(LoweringTable& table) {
  table["aten::eq.Tensor"] = table["aten::eq.Scalar"] = comparison("EQ");
  table["aten::ne.Tensor"] = table["aten::ne.Scalar"] = comparison("NE");
  table["aten::lt.Tensor"] = table["aten::lt.Scalar"] = comparison("LT");
  table["aten::le.Tensor"] = table["aten::le.Scalar"] = comparison("LE");
  table["aten::gt.Tensor"] = table["aten::gt.Scalar"] = comparison("GT");
  table["aten::ge.Tensor"] = table["aten::ge.Scalar"] = comparison("GE");
}

}  // namespace

void add_pointwise(LoweringTable& table) {
  add_unary(table);
  add_binary(table);
  add_comparisons(table);
  table["aten::addcmul"] = added("multiply");
  table["aten::addcdiv"] = added("divide");
  table["aten::lerp.Tensor"] = table["aten::lerp.Scalar"] = lower_lerp;
  table["aten::pow.Tensor_Scalar"] = table["aten::pow.Tensor_Tensor"] = lower_pow;
  table["aten::pow.Scalar"] = of_two("power");
  table["aten::clamp"] = table["aten::clamp.Tensor"] = lower_clamp;
  table["aten::clamp_min"] = table["aten::clamp_min.Tensor"] = of_two("maximum");
  table["aten::clamp_max"] = table["aten::clamp_max.Tensor"] = of_two("minimum");
  table["aten::where.self"] = lower_where;
  table["aten::masked_fill.Scalar"] = table["aten::masked_fill.Tensor"] = lower_masked_fill;
  table["aten::copy_"] = lower_copy;
  table["aten::_to_copy"] = table["aten::clone"] = table["aten::contiguous"] = lower_same;
  table["aten::lift_fresh_copy"] = table["aten::detach_copy"] = lower_same;
}

}  // namespace levin::xla
