// Random numbers: Threefry 2x32 of 20 rounds (Salmon et al., Parallel random numbers: as easy as 1,
// 2, 3, 2011), a function of the run's key, the number of the draw in the program, and an element's
// place. So a program that is partitioned over devices draws the same numbers as on one device.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

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

/// Returns `count` random bits as an integer, in f32 or f64.
Term digits_of(Builder& hlo, LoweringState& state, const Dims& sizes, int count) {
  const Words words = random_words(hlo, state, sizes);
  if (count <= 24) {
    return words[0].binary("shift_right_logical", words[0].number(32 - count)).as(at::kFloat);
  }
  const Term bits = wide(words);
  return bits.binary("shift_right_logical", bits.number(64 - count)).as(at::kDouble);
}

}  // namespace

int Lowering::num_digits(at::ScalarType dtype) {
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

}  // namespace levin::xla
