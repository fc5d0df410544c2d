// Random numbers: Threefry 2x32 of 20 rounds (Salmon et al., Parallel random numbers: as easy as 1,
// 2, 3, 2011), a function of the run's key, which draw of the program it is, and an element's
// place: so that a program that is divided over devices draws what one device would.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

using Words = std::array<Term, 2>;

Term rotated(const Term& x, int bits) {
  return x.binary("shift_left", x.number(bits)) |
         x.binary("shift_right_logical", x.number(32 - bits));
}

/// The second half of each group of four rounds is another one.
constexpr std::array<std::array<int, 4>, 2> kRotations = {{{13, 15, 26, 6}, {17, 29, 16, 24}}};

Words threefry(const Words& key, Words counter) {
  const Term parity = key[0].number(0x1BD11BDA);
  const std::array<Term, 3> keys = {key[0], key[1],
                                    key[0].binary("xor", key[1]).binary("xor", parity)};
  counter = {counter[0] + keys[0], counter[1] + keys[1]};
  for (int group = 0; group < 5; ++group) {
    for (const int rotation : kRotations[group % 2]) {
      counter[0] = counter[0] + counter[1];
      counter[1] = rotated(counter[1], rotation).binary("xor", counter[0]);
    }
    counter[0] = counter[0] + keys[(group + 1) % 3];
    counter[1] = counter[1] + keys[(group + 2) % 3] + static_cast<double>(group + 1);
  }
  return counter;
}

/// The element's place in its tensor, row by row.
Term place_of_element(Builder& hlo, const Dims& sizes) {
  Term place(hlo, hlo.constant(0, at::kUInt32, sizes));
  int64_t stride = 1;
  for (int64_t dim = static_cast<int64_t>(sizes.size()) - 1; dim >= 0; --dim) {
    if (sizes[dim] == 1) continue;
    const Term index(hlo, hlo.iota(at::kUInt32, sizes, dim));
    place = place + index * static_cast<double>(static_cast<uint32_t>(stride));
    stride *= sizes[dim];
  }
  return place;
}

/// 64 random bits of each element.
Words random_words(Builder& hlo, LoweringState& state, const Dims& sizes) {
  const auto [first, second] = state.random_key();
  const Term place = place_of_element(hlo, sizes);
  const Term draw = place.number(static_cast<double>(state.next_draw()));
  const Words key = {Term(hlo, hlo.expand(first, sizes)), Term(hlo, hlo.expand(second, sizes))};
  return threefry(key, {place, draw});
}

Term wide(const Words& words) {
  const Term high = words[0].as(at::kUInt64);
  return high.binary("shift_left", high.number(32)) | words[1].as(at::kUInt64);
}

/// What a float of the dtype holds without rounding.
int num_digits(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::digits;
    case at::kHalf:
      return 11;
    case at::kBFloat16:
      return 8;
    default:
      return std::numeric_limits<float>::digits;
  }
}

/// That many random bits as a whole number, in f32 or f64.
Term digits_of(Builder& hlo, LoweringState& state, const Dims& sizes, int count) {
  const Words words = random_words(hlo, state, sizes);
  if (count <= 24) {
    return words[0].binary("shift_right_logical", words[0].number(32 - count)).as(at::kFloat);
  }
  const Term bits = wide(words);
  return bits.binary("shift_right_logical", bits.number(64 - count)).as(at::kDouble);
}

}  // namespace

Hlo Lowering::random_bits(const Dims& sizes) {
  const Words words = random_words(hlo, state_, sizes);
  return words[0].binary("xor", words[1]);
}

Hlo Lowering::random_wide_bits(const Dims& sizes) { return wide(random_words(hlo, state_, sizes)); }

Hlo Lowering::uniform(at::ScalarType dtype, const Dims& sizes) {
  const int count = num_digits(dtype);
  return (digits_of(hlo, state_, sizes, count) * std::ldexp(1.0, -count)).as(dtype);
}

Hlo Lowering::open_uniform(at::ScalarType dtype, const Dims& sizes) {
  const int count = num_digits(compute_dtype(dtype)) - 1;
  return (2 * digits_of(hlo, state_, sizes, count) + 1) * std::ldexp(1.0, -count - 1);
}

Hlo Lowering::normal(at::ScalarType dtype, const Dims& sizes) {
  // Odd multiples of 2^-23 (2^-52) from -1 to 1: exact, and neither end.
  const Term inside(hlo, open_uniform(dtype, sizes));
  return (erf_inv(2 * inside - 1) * std::numbers::sqrt2).as(dtype);
}

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

/// Of which either may be a tensor: argument 0 is the mean, 1 the deviation.
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

/// How many numbers from 0 on the dtype holds one by one.
uint64_t range_of_dtype(at::ScalarType dtype) {
  if (at::isFloatingType(dtype))
    return (uint64_t{1} << static_cast<unsigned>(num_digits(dtype))) + 1;
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

/// With probability p: of f32 or f64, repeated to the result's sizes.
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

/// Places in the order of 64 random bits each.
Hlo random_order(Lowering& at, int64_t count) {
  const Hlo bits = at.random_wide_bits({count});
  return at.hlo.sort({bits, at.hlo.iota(at::kLong, {count}, 0)}, 0, /*descending=*/false)[1];
}

void lower_randperm(Lowering& at) { at.give(random_order(at, at.sizes()[0])); }

/// The categories whose exponential times with these rates are first: draws without replacement,
/// as ATen has them.
Hlo race_winners(Lowering& at, const Hlo& p, int64_t count) {
  const Term times(at.hlo, at.open_uniform(p.dtype, p.sizes));
  const Term speed = Term(at.hlo, p) / -log(times);
  const int64_t dim = p.rank() - 1;
  const std::vector<Hlo> order =
      at.hlo.sort({speed, at.hlo.iota(at::kLong, p.sizes, dim)}, dim, /*descending=*/true);
  Dims limit = p.sizes;
  limit[dim] = count;
  return at.hlo.slice(order[1], Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
}

/// How many categories end before a uniform share of the total, and at most the last possible one.
Hlo independent_draws(Lowering& at, const Hlo& p, int64_t count) {
  const int64_t dim = p.rank() - 1;
  Dims draws = p.sizes;
  draws[dim] = count;
  Dims table = draws;
  table.push_back(p.sizes[dim]);
  Dims to_p;
  Dims to_draws;
  for (int64_t i = 0; i < p.rank(); ++i) {
    to_draws.push_back(i);
    to_p.push_back(i == dim ? dim + 1 : i);
  }
  const Dims ones(p.sizes.size(), 1);
  Window window{ones, ones, ones, ones, Dims(ones.size(), 0), Dims(ones.size(), 0)};
  window.sizes[dim] = p.sizes[dim];
  window.pad_low[dim] = p.sizes[dim] - 1;
  const Hlo ends = at.hlo.reduce_window("add", p, at.hlo.constant(0, p.dtype), window);
  const Term total(at.hlo, at.maximum(ends, {dim}, /*keepdim=*/true));
  const Term share = Term(at.hlo, at.uniform(p.dtype, draws)) * total.expanded(draws);
  const Term is_before = Term(at.hlo, at.hlo.broadcast_in_dim(ends, table, to_p)) <=
                         Term(at.hlo, at.hlo.broadcast_in_dim(share, table, to_draws));
  const Term place(at.hlo, at.sum(is_before.as(at::kLong), {dim + 1}, /*keepdim=*/false));
  const Term category(at.hlo, at.hlo.iota(at::kLong, p.sizes, dim));
  const Term possible = where(Term(at.hlo, p) > 0, category, 0);
  const Term last(at.hlo, at.maximum(possible, {dim}, /*keepdim=*/true));
  return minimum(place, last.expanded(draws));
}

/// self, num_samples, replacement
void lower_multinomial(Lowering& at) {
  const Hlo given = at.tensor(0);
  const Hlo p = at.hlo.convert(given, Lowering::compute_dtype(given.dtype));
  const int64_t count = at.integer(1);
  at.give(at.flag(2) && count > 1 ? independent_draws(at, p, count) : race_winners(at, p, count));
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
  table["aten::randperm"] = table["aten::randperm.generator"] = lower_randperm;
  table["aten::multinomial"] = lower_multinomial;
}

}  // namespace levin::xla
