// Random numbers of ATen's distributions, element by element.
#include <cmath>
#include <limits>
#include <numbers>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

Term uniform_of(Lowering& at) { return {at.hlo, at.uniform(at.dtype(), at.sizes())}; }
Term open_uniform_of(Lowering& at) { return {at.hlo, at.open_uniform(at.dtype(), at.sizes())}; }

Term runtime_of(Lowering& at, size_t index, const Term& like) {
  return Term(at.hlo, at.scalar(index, like.dtype())).expanded(like.sizes());
}

/// self, from, to
void lower_uniform(Lowering& at) {
  const Term u = uniform_of(at).as(Lowering::compute_dtype(at.dtype()));
  const Term from = runtime_of(at, 1, u);
  at.give(from + u * (runtime_of(at, 2, u) - from));
}

Term standard_normal(Lowering& at) {
  return {at.hlo, at.normal(Lowering::compute_dtype(at.dtype()), at.sizes())};
}

/// self, mean, std
void lower_normal(Lowering& at) {
  const Term z = standard_normal(at);
  at.give(runtime_of(at, 1, z) + z * runtime_of(at, 2, z));
}

/// Lowers normal: argument 0 is the mean, 1 the standard deviation; either may be a tensor.
void lower_normal_of_tensors(Lowering& at) {
  const Term z = standard_normal(at);
  const auto number = [&](size_t index) {
    return Term(at.hlo, at.hlo.expand(at.tensor(index, z.dtype()), z.sizes()));
  };
  at.give(number(0) + z * number(1));
}

void lower_log_normal(Lowering& at) {
  const Term z = standard_normal(at);
  at.give(exp(runtime_of(at, 1, z) + z * runtime_of(at, 2, z)));
}

void lower_exponential(Lowering& at) {
  const Term u = open_uniform_of(at);
  at.give(-log(u) / runtime_of(at, 1, u));
}

void lower_geometric(Lowering& at) {
  const at::ScalarType in = at::isFloatingType(at.dtype()) ? at.dtype() : at::kDouble;
  const Term u(at.hlo, at.open_uniform(in, at.sizes()));
  at.give((log(u) / std::log1p(-at.number(1))).unary("ceil"));
}

/// self, median, sigma
void lower_cauchy(Lowering& at) {
  const Term u = open_uniform_of(at);
  const Term tangent = (std::numbers::pi * (u - 0.5)).unary("tan");
  at.give(runtime_of(at, 1, u) + runtime_of(at, 2, u) * tangent);
}

/// A whole number from `from` on, below from + range; of range 0: any of 64 bits.
void give_integers(Lowering& at, int64_t from, uint64_t range) {
  const bool is_wide = range == 0 || range > std::numeric_limits<uint32_t>::max();
  const auto dtype = is_wide ? at::kUInt64 : at::kUInt32;
  Hlo bits = is_wide ? at.random_wide_bits(at.sizes()) : at.random_bits(at.sizes());
  if (range != 0) {
    const Hlo count = at.hlo.constant(at::Scalar(range), dtype);
    bits = at.hlo.binary("remainder", bits, at.spread(count, bits));
  }
  const Hlo whole = at.hlo.convert(bits, at::kLong);
  const Hlo start = at.hlo.constant(at::Scalar(from), at::kLong);
  at.give(at.hlo.binary("add", whole, at.spread(start, whole)));
}

/// Returns how many integers from 0 on the dtype represents exactly.
uint64_t range_of_dtype(at::ScalarType dtype) {
  if (at::isFloatingType(dtype))
    return (uint64_t{1} << static_cast<unsigned>(Lowering::num_digits(dtype))) + 1;
  if (dtype == at::kBool) return 2;
  if (dtype == at::kByte) return 256;
  const auto bits = static_cast<unsigned>(8 * c10::elementSize(dtype)) - 1;
  return uint64_t{1} << bits;
}

void lower_random(Lowering& at) { give_integers(at, 0, range_of_dtype(at.dtype())); }

/// self, to
void lower_random_to(Lowering& at) { give_integers(at, 0, static_cast<uint64_t>(at.integer(1))); }

/// self, from, to: without an end the dtype's.
void lower_random_from(Lowering& at) {
  const int64_t from = at.integer(1);
  if (at.has(2)) {
    return give_integers(at, from,
                         static_cast<uint64_t>(at.integer(2)) - static_cast<uint64_t>(from));
  }
  give_integers(at, from, range_of_dtype(at.dtype()) - static_cast<uint64_t>(from));
}

/// Draws with probability p: of f32 or f64, repeated to the result's sizes.
void give_bernoulli(Lowering& at, const Hlo& p) {
  const Hlo u = at.uniform(p.dtype, at.sizes());
  at.give(at.hlo.compare("LT", u, at.hlo.expand(p, u.sizes)));
}

at::ScalarType probability_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

/// The argument is a number or a tensor.
LowerFunction bernoulli(size_t p) {
  return [p](Lowering& at) { give_bernoulli(at, at.tensor(p, probability_dtype(at.dtype()))); };
}

/// input, p, train -> output, mask
void lower_native_dropout(Lowering& at) {
  const Term x = term_of(at, 0);
  if (at.has(2) && !at.flag(2)) {
    at.give(x);
    return at.give(at.hlo.constant(true, at::kBool));
  }
  const double kept = 1 - at.number(1);
  const Hlo u = at.uniform(probability_dtype(x.dtype()), x.sizes());
  const Hlo mask = at.hlo.compare("LT", u, at.like(kept, u));
  const double scale = kept == 0 ? 0 : 1 / kept;
  at.give(x * Term(at.hlo, mask).as(x.dtype()) * scale);
  at.give(mask);
}

/// grad, mask, scale
void lower_native_dropout_backward(Lowering& at) {
  at.give(term_of(at, 0) * term_of(at, 1) * at.number(2));
}

/// self, noise, lower, upper, training
void lower_rrelu(Lowering& at) {
  const Term x = term_of(at, 0);
  if (!at.flag(4)) {
    at.give(where(x > 0, x, x * ((at.number(2) + at.number(3)) / 2)));
    if (at.results().size() > 1) at.give(1, at.tensor(1));
    return;
  }
  const Term u(at.hlo, at.uniform(x.dtype(), x.sizes()));
  const Term slope = u * (at.number(3) - at.number(2)) + at.number(2);
  const Term noise = where(x <= 0, slope, 1);
  at.give(x * noise);
  at.give(noise);
}

}  // namespace

void add_random(LoweringTable& table) {
  table["aten::uniform"] = table["aten::uniform_"] = lower_uniform;
  table["aten::normal_"] = table["aten::normal_functional"] = lower_normal;
  table["aten::normal.Tensor_float"] = lower_normal_of_tensors;
  table["aten::normal.float_Tensor"] = lower_normal_of_tensors;
  table["aten::normal.Tensor_Tensor"] = lower_normal_of_tensors;
  table["aten::log_normal_"] = lower_log_normal;
  table["aten::exponential_"] = lower_exponential;
  table["aten::geometric_"] = lower_geometric;
  table["aten::cauchy_"] = lower_cauchy;
  table["aten::random_"] = lower_random;
  table["aten::random_.to"] = lower_random_to;
  table["aten::random_.from"] = lower_random_from;
  table["aten::bernoulli"] = bernoulli(0);
  table["aten::bernoulli.p"] = bernoulli(1);
  table["aten::bernoulli_.float"] = table["aten::bernoulli_.Tensor"] = bernoulli(1);
  table["aten::native_dropout"] = lower_native_dropout;
  table["aten::native_dropout_backward"] = lower_native_dropout_backward;
  table["aten::rrelu_with_noise"] = table["aten::rrelu_with_noise_"] = lower_rrelu;
}

}  // namespace levin::xla
