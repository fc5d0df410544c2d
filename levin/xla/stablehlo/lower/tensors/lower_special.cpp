// Functions that StableHLO has no operator for: CHLO's, which every PJRT plugin expands, in f32 and
// in f64 to their last digits.
#include <cmath>
#include <limits>
#include <numbers>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

using OfTerm = Term (*)(const Term&);
using OfTerms = Term (*)(const Term&, const Term&);

LowerFunction formula(OfTerm f) {
  return [f](Lowering& at) { at.give(f(term_of(at, 0))); };
}

LowerFunction formula_of_two(OfTerms f) {
  return [f](Lowering& at) { at.give(f(term_of(at, 0), term_of(at, 1))); };
}

LowerFunction by_chlo(const char* name) {
  return [name](Lowering& at) { at.give(term_of(at, 0).unary(name)); };
}

Term trunc_of(const Term& x) { return where(x < 0, x.unary("ceil"), x.unary("floor")); }

/// 0 where x is 0, whatever y is; a NaN of y stays one.
Term x_times(const Term& x, const Term& y, const Term& of_y) {
  return where(is_nan(y), y, where(same(x, 0), 0, x * of_y));
}

/// log(exp(a) + exp(b))
Term log_add_exp(const Term& a, const Term& b) {
  const Term most = maximum(a, b);
  const Term sum = most + log1p(exp(-abs(a - b)));
  return where(same(a, b) & same(abs(a), std::numeric_limits<double>::infinity()), a, sum);
}

/// The magnitude of one with the sign of another.
Term copy_sign(const Term& a, const Term& b) {
  const Term is_negative = (b < 0) | (same(b, 0) & (1 / b < 0));
  return where(is_negative, -abs(a), abs(a));
}

Term hypotenuse(const Term& a, const Term& b) {
  const Term most = maximum(abs(a), abs(b));
  const Term least = minimum(abs(a), abs(b));
  const Term ratio = least / most;
  const Term is_plain = same(most, 0) | same(most, std::numeric_limits<double>::infinity());
  return where(is_plain, most, most * sqrt(1 + ratio * ratio));
}

Term sinc_of(const Term& x) {
  const Term scaled = x * std::numbers::pi;
  return where(same(x, 0), 1, scaled.unary("sine") / scaled);
}

Term entropy_of(const Term& x) {
  const double infinite = std::numeric_limits<double>::infinity();
  return where(is_nan(x), x,
               where(x > 0, -x * log(x), where(same(x, 0), x.number(0), x.number(-infinite))));
}

void lower_polygamma(Lowering& at) {
  const Term x(at.hlo,
               at.hlo.expand(at.tensor(1, Lowering::compute_dtype(at.dtype())), at.sizes()));
  at.give(x.number(static_cast<double>(at.integer(0))).binary("chlo.polygamma", x));
}

void lower_round_decimals(Lowering& at) {
  const Term x = term_of(at, 0);
  const double power = std::pow(10.0, std::abs(static_cast<double>(at.integer(1))));
  const bool is_behind = at.integer(1) >= 0;
  const Term rounded = (is_behind ? x * power : x / power).unary("round_nearest_even");
  at.give(is_behind ? rounded / power : rounded * power);
}

void add_formulas(LoweringTable& table) {
  table["aten::frac"] = formula([](const Term& x) { return x - trunc_of(x); });
  table["aten::sinc"] = formula(sinc_of);
  table["aten::special_entr"] = formula(entropy_of);
  table["aten::special_ndtri"] =
      formula([](const Term& x) { return erf_inv(2 * x - 1) * std::numbers::sqrt2; });
  table["aten::deg2rad"] = formula([](const Term& x) { return x * (std::numbers::pi / 180); });
  table["aten::rad2deg"] = formula([](const Term& x) { return x * (180 / std::numbers::pi); });
  table["aten::xlogy.Tensor"] =
      formula_of_two([](const Term& x, const Term& y) { return x_times(x, y, log(y)); });
  table["aten::special_xlog1py"] =
      formula_of_two([](const Term& x, const Term& y) { return x_times(x, y, log1p(y)); });
  table["aten::logaddexp"] = formula_of_two(log_add_exp);
  table["aten::hypot"] = formula_of_two(hypotenuse);
  table["aten::copysign.Tensor"] = table["aten::copysign.Scalar"] = formula_of_two(copy_sign);
  table["aten::heaviside"] = formula_of_two([](const Term& x, const Term& at_zero) {
    return where(same(x, 0), at_zero, (x > 0).as(x.dtype()));
  });
}

}  // namespace

void add_special(LoweringTable& table) {
  for (const auto& [name, chlo] : std::initializer_list<std::pair<std::string_view, const char*>>{
           {"aten::erf", "chlo.erf"},
           {"aten::erfc", "chlo.erfc"},
           {"aten::erfinv", "chlo.erf_inv"},
           {"aten::lgamma", "chlo.lgamma"},
           {"aten::digamma", "chlo.digamma"},
           {"aten::asin", "chlo.asin"},
           {"aten::acos", "chlo.acos"},
           {"aten::atan", "chlo.atan"},
           {"aten::sinh", "chlo.sinh"},
           {"aten::cosh", "chlo.cosh"},
           {"aten::asinh", "chlo.asinh"},
           {"aten::acosh", "chlo.acosh"},
           {"aten::atanh", "chlo.atanh"}}) {
    table[name] = by_chlo(chlo);
  }
  table["aten::polygamma"] = lower_polygamma;
  table["aten::round.decimals"] = lower_round_decimals;
  add_formulas(table);
}

}  // namespace levin::xla
