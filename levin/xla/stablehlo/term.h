#pragma once
// Term: a value of the program with the signs of arithmetic, for lowerings that are formulas. Both
// sides have one dtype; a number, and a value of fewer dimensions, is repeated.
//
//   const Term x = term_of(at, 0);           // in float32, of the sizes of the operator's result
//   at.give(x * logistic(x));                // silu

#include <ATen/core/Reduction.h>

#include <string_view>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {

class Term {
 public:
  Term(Builder& builder, Hlo value) : builder_(&builder), value_(std::move(value)) {}

  const Hlo& hlo() const { return value_; }
  operator const Hlo&() const { return value_; }
  Builder& builder() const { return *builder_; }
  at::ScalarType dtype() const { return value_.dtype; }
  const Dims& sizes() const { return value_.sizes; }

  /// Returns a tensor with the number in all elements.
  Term number(double number) const {
    return {*builder_, builder_->expand(builder_->constant(number, dtype()), sizes())};
  }
  Term as(at::ScalarType dtype) const { return {*builder_, builder_->convert(value_, dtype)}; }
  Term expanded(const Dims& sizes) const { return {*builder_, builder_->expand(value_, sizes)}; }
  Term unary(std::string_view name) const { return {*builder_, builder_->unary(name, value_)}; }
  Term binary(std::string_view name, const Term& other) const {
    const Dims& sizes = value_.rank() >= other.value_.rank() ? value_.sizes : other.value_.sizes;
    return {*builder_, builder_->binary(name, expanded(sizes), other.expanded(sizes))};
  }
  Term compared(std::string_view direction, const Term& other) const {
    const Dims& sizes = value_.rank() >= other.value_.rank() ? value_.sizes : other.value_.sizes;
    return {*builder_, builder_->compare(direction, expanded(sizes), other.expanded(sizes))};
  }

 private:
  Builder* builder_;
  Hlo value_;
};

inline Term operator+(const Term& a, const Term& b) { return a.binary("add", b); }
inline Term operator-(const Term& a, const Term& b) { return a.binary("subtract", b); }
inline Term operator*(const Term& a, const Term& b) { return a.binary("multiply", b); }
inline Term operator/(const Term& a, const Term& b) { return a.binary("divide", b); }
inline Term operator+(const Term& a, double b) { return a + a.number(b); }
inline Term operator-(const Term& a, double b) { return a - a.number(b); }
inline Term operator*(const Term& a, double b) { return a * a.number(b); }
inline Term operator/(const Term& a, double b) { return a / a.number(b); }
inline Term operator+(double a, const Term& b) { return b.number(a) + b; }
inline Term operator-(double a, const Term& b) { return b.number(a) - b; }
inline Term operator*(double a, const Term& b) { return b.number(a) * b; }
inline Term operator/(double a, const Term& b) { return b.number(a) / b; }
inline Term operator-(const Term& a) { return a.unary("negate"); }

inline Term operator<(const Term& a, const Term& b) { return a.compared("LT", b); }
inline Term operator<=(const Term& a, const Term& b) { return a.compared("LE", b); }
inline Term operator>(const Term& a, const Term& b) { return a.compared("GT", b); }
inline Term operator>=(const Term& a, const Term& b) { return a.compared("GE", b); }
inline Term operator<(const Term& a, double b) { return a < a.number(b); }
inline Term operator<=(const Term& a, double b) { return a <= a.number(b); }
inline Term operator>(const Term& a, double b) { return a > a.number(b); }
inline Term operator>=(const Term& a, double b) { return a >= a.number(b); }
inline Term same(const Term& a, const Term& b) { return a.compared("EQ", b); }
inline Term same(const Term& a, double b) { return same(a, a.number(b)); }
inline Term is_nan(const Term& a) { return a.compared("NE", a); }
inline Term operator&(const Term& a, const Term& b) { return a.binary("and", b); }
inline Term operator|(const Term& a, const Term& b) { return a.binary("or", b); }
inline Term operator!(const Term& a) { return a.unary("not"); }

inline Term exp(const Term& x) { return x.unary("exponential"); }
inline Term expm1(const Term& x) { return x.unary("exponential_minus_one"); }
inline Term log(const Term& x) { return x.unary("log"); }
inline Term log1p(const Term& x) { return x.unary("log_plus_one"); }
inline Term sqrt(const Term& x) { return x.unary("sqrt"); }
inline Term abs(const Term& x) { return x.unary("abs"); }
inline Term tanh(const Term& x) { return x.unary("tanh"); }
inline Term logistic(const Term& x) { return x.unary("logistic"); }
inline Term erf(const Term& x) { return x.unary("chlo.erf"); }
inline Term erf_inv(const Term& x) { return x.unary("chlo.erf_inv"); }
/// A NaN of either stays one.
inline Term maximum(const Term& a, const Term& b) { return a.binary("maximum", b); }
inline Term minimum(const Term& a, const Term& b) { return a.binary("minimum", b); }
inline Term maximum(const Term& a, double b) { return maximum(a, a.number(b)); }
inline Term minimum(const Term& a, double b) { return minimum(a, a.number(b)); }

inline Term where(const Term& condition, const Term& yes, const Term& no) {
  return {yes.builder(), yes.builder().select(condition, yes, no)};
}
inline Term where(const Term& condition, const Term& yes, double no) {
  return where(condition, yes, yes.number(no));
}
inline Term where(const Term& condition, double yes, const Term& no) {
  return where(condition, no.number(yes), no);
}

/// The argument in what ATen computes the operator's first result in, repeated to its sizes.
inline Term term_of(Lowering& at, size_t index) {
  const Hlo x = at.tensor(index, Lowering::compute_dtype(at.dtype()));
  return {at.hlo, at.hlo.expand(x, at.sizes())};
}

/// The losses of all elements, reduced as at::Reduction says.
inline void give_loss(Lowering& at, const Term& loss, int64_t reduction) {
  if (reduction == at::Reduction::None) return at.give(loss);
  const Hlo total = at.hlo.reshape(
      at.sum(at.hlo.reshape(loss, {loss.hlo().numel()}), {0}, /*keepdim=*/false), {});
  if (reduction == at::Reduction::Sum) return at.give(total);
  at.give(Term(at.hlo, total) / static_cast<double>(loss.hlo().numel()));
}

}  // namespace levin::xla
