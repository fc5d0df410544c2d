// Numbers among themselves, as Python has them.
#include <cmath>

#include "levin/text/template/operators.h"

namespace levin::text::jinja {
namespace {

[[noreturn]] void overflow(Run& run) { run.fail("an integer exceeds 2^63"); }

int64_t floor_quotient(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return quotient - static_cast<int64_t>(left % right != 0 && (left < 0) != (right < 0));
}

double floor_remainder(double left, double right) {
  double rest = std::fmod(left, right);
  if (rest != 0 ? (rest < 0) != (right < 0) : false) rest += right;
  return rest == 0 ? std::copysign(0.0, right) : rest;
}

Value power(Run& run, const Value& left, const Value& right) {
  const auto base = left.whole();
  const auto exponent = right.whole();
  if (!base || !exponent || *exponent < 0) {
    if (*left.number() == 0 && *right.number() < 0) run.fail("0 has no negative power");
    const double value = std::pow(*left.number(), *right.number());
    if (std::isnan(value) && !std::isnan(*left.number()))
      run.fail("the power is not a real number");
    if (std::isinf(value) && !std::isinf(*left.number()) && !std::isinf(*right.number()))
      run.fail("the power is too large");
    return Value(value);
  }
  int64_t value = 1;
  if (*base == 0 || *base == 1) return Value(*exponent == 0 ? int64_t{1} : *base);
  if (*base == -1) return Value(*exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  if (*exponent > 64) overflow(run);
  for (int64_t i = 0; i < *exponent; ++i) {
    if (__builtin_mul_overflow(value, *base, &value)) overflow(run);
  }
  return Value(value);
}

Value whole_numbers(Run& run, std::string_view op, int64_t left, int64_t right) {
  int64_t value = 0;
  if (op == "+") {
    if (__builtin_add_overflow(left, right, &value)) overflow(run);
    return Value(value);
  }
  if (op == "-") {
    if (__builtin_sub_overflow(left, right, &value)) overflow(run);
    return Value(value);
  }
  if (op == "*") {
    if (__builtin_mul_overflow(left, right, &value)) overflow(run);
    return Value(value);
  }
  if (right == 0) run.fail("division by zero");
  if (op == "/") return Value(static_cast<double>(left) / static_cast<double>(right));
  if (right == -1) {
    if (op == "%") return Value(int64_t{0});
    if (__builtin_sub_overflow(int64_t{0}, left, &value)) overflow(run);
    return Value(value);
  }
  const int64_t quotient = floor_quotient(left, right);
  return Value(op == "//" ? quotient : left - quotient * right);
}

}  // namespace

Value arithmetic(Run& run, std::string_view op, const Value& left, const Value& right) {
  if (op == "**") return power(run, left, right);
  if (left.whole() && right.whole()) return whole_numbers(run, op, *left.whole(), *right.whole());
  const double a = *left.number();
  const double b = *right.number();
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (b == 0) run.fail("division by zero");
  if (op == "/") return Value(a / b);
  const double rest = floor_remainder(a, b);
  if (op == "%") return Value(rest);
  return Value(std::round((a - rest) / b));
}

std::optional<Value> signed_number(Run& run, std::string_view op, const Value& value) {
  if (const auto whole = value.whole()) {
    int64_t negated = 0;
    if (op == "+") return Value(*whole);
    if (__builtin_sub_overflow(int64_t{0}, *whole, &negated)) overflow(run);
    return Value(negated);
  }
  if (const auto number = value.number()) return Value(op == "-" ? -*number : *number);
  return std::nullopt;
}

}  // namespace levin::text::jinja
