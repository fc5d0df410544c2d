#include "levin/base/random/mersenne_twister.h"

#include <ATen/CPUGeneratorImpl.h>

#include <bit>
#include <optional>
#include <vector>

namespace levin::detail {
namespace {

// Matsumoto and Nishimura (1998): sizes and the matrix of MT19937.
constexpr size_t kWords = at::MERSENNE_STATE_N;
constexpr size_t kMiddle = at::MERSENNE_STATE_M;
constexpr uint32_t kMatrix = at::MATRIX_A;
constexpr size_t kDegree = 19937;

constexpr uint64_t kJumpFrom = 4096;  // blocks; where stepping takes as long

using Block = std::array<uint32_t, kWords>;

uint32_t twisted(uint32_t upper, uint32_t lower) {
  const uint32_t mixed = (upper & at::UMASK) | (lower & at::LMASK);
  return (mixed >> 1) ^ ((lower & 1) != 0 ? kMatrix : 0);
}

/// The next kWords words of the engine, before tempering.
void step(Block& block) {
  for (size_t i = 0; i < kWords - kMiddle; ++i) {
    block[i] = block[i + kMiddle] ^ twisted(block[i], block[i + 1]);
  }
  for (size_t i = kWords - kMiddle; i < kWords - 1; ++i) {
    block[i] = block[i + kMiddle - kWords] ^ twisted(block[i], block[i + 1]);
  }
  block[kWords - 1] = block[kMiddle - 1] ^ twisted(block[kWords - 1], block[0]);
}

/// A polynomial over GF(2); bit i of it is the coefficient of x^i.
using Polynomial = std::vector<uint64_t>;
constexpr size_t kPolynomialWords = kDegree / 64 + 1;

bool has(const Polynomial& p, size_t exponent) {
  return ((p[exponent / 64] >> (exponent % 64)) & 1) != 0;
}

/// p += word * x^shift.
void add_shifted(Polynomial& p, uint64_t word, size_t shift) {
  const size_t at = shift / 64, by = shift % 64;
  p[at] ^= word << by;
  if (by != 0 && at + 1 < p.size()) p[at + 1] ^= word >> (64 - by);
}

/// p * (x^high + x^low), as large as p.
Polynomial times(const Polynomial& p, size_t high, size_t low) {
  Polynomial product(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    add_shifted(product, p[i], 64 * i + high);
    add_shifted(product, p[i], 64 * i + low);
  }
  return product;
}

/// The exponents of the engine's characteristic polynomial below its degree, by the formula in
/// appendix A of Matsumoto and Nishimura, with w - r = 1: A B^31 + sum of a_i A B^(30-i) + a_31,
/// where A = x^n + x^m, B = x^(n-1) + x^(m-1), and a_i are the matrix's bits.
std::vector<size_t> characteristic_exponents() {
  Polynomial sum(kPolynomialWords + 10);
  sum[0] = 1;
  for (size_t i = 0; i < 31; ++i) {
    sum = times(sum, kWords - 1, kMiddle - 1);
    sum[0] ^= (kMatrix >> i) & 1;
  }
  sum = times(sum, kWords, kMiddle);
  sum[0] ^= kMatrix >> 31;
  std::vector<size_t> exponents;
  for (size_t i = 0; i < kDegree; ++i) {
    if (has(sum, i)) exponents.push_back(i);
  }
  return exponents;
}

uint64_t spread(uint32_t word) {
  uint64_t bits = word;
  bits = (bits | (bits << 16)) & 0x0000ffff0000ffffULL;
  bits = (bits | (bits << 8)) & 0x00ff00ff00ff00ffULL;
  bits = (bits | (bits << 4)) & 0x0f0f0f0f0f0f0f0fULL;
  bits = (bits | (bits << 2)) & 0x3333333333333333ULL;
  return (bits | (bits << 1)) & 0x5555555555555555ULL;
}

/// p modulo the characteristic polynomial. Its second exponent is more than 64 below its degree, so
/// that a word that is taken away does not come back into itself.
void reduce(Polynomial& p, const std::vector<size_t>& exponents) {
  for (size_t i = p.size(); i-- > kPolynomialWords;) {
    const uint64_t word = std::exchange(p[i], 0);
    if (word == 0) continue;
    for (const size_t exponent : exponents) {
      add_shifted(p, word, 64 * i - kDegree + exponent);
    }
  }
  constexpr size_t kBit = kDegree % 64;
  uint64_t& last = p[kPolynomialWords - 1];
  const uint64_t high = last >> kBit;
  last &= (uint64_t{1} << kBit) - 1;
  for (const size_t exponent : exponents) {
    if (high != 0) add_shifted(p, high, exponent);
  }
  p.resize(kPolynomialWords);
}

/// x^n modulo the characteristic polynomial.
Polynomial power(uint64_t n) {
  const std::vector<size_t> exponents = characteristic_exponents();
  Polynomial result(kPolynomialWords);
  result[0] = 1;
  for (size_t bit = std::bit_width(n); bit-- > 0;) {
    Polynomial square(2 * kPolynomialWords + 1);
    for (size_t i = 0; i < kPolynomialWords; ++i) {
      square[2 * i] = spread(static_cast<uint32_t>(result[i]));
      square[2 * i + 1] = spread(static_cast<uint32_t>(result[i] >> 32));
    }
    if (((n >> bit) & 1) != 0) {
      for (size_t i = square.size(); i-- > 1;) square[i] = (square[i] << 1) | (square[i - 1] >> 63);
      square[0] <<= 1;
    }
    reduce(square, exponents);
    result = std::move(square);
  }
  return result;
}

/// The block that stands this many blocks further on: each word of it is the sum of those words
/// that follow the first ones at the distances of the polynomial's exponents. Counted from the
/// second word on, as the lower bits of the first are no part of the engine's state.
void jump(Block& block, uint64_t blocks) {
  const Polynomial polynomial = power(blocks * kWords - 1);
  constexpr size_t kBlocks = (kDegree + kWords) / kWords + 1;
  std::vector<uint32_t> words;
  words.reserve(kBlocks * kWords);
  Block next = block;
  for (size_t i = 0; i < kBlocks; ++i) {
    words.insert(words.end(), next.begin(), next.end());
    step(next);
  }
  block.fill(0);
  for (size_t i = 0; i < kDegree; ++i) {
    if (!has(polynomial, i)) continue;
    const uint32_t* from = words.data() + 1 + i;
    for (size_t j = 0; j < kWords; ++j) block[j] ^= from[j];
  }
}

}  // namespace

void discard(at::mt19937_data_pod& engine, uint64_t words) {
  const auto left = static_cast<uint64_t>(engine.left_ - 1);
  if (words <= left) {
    engine.left_ -= static_cast<int>(words);
    engine.next_ += static_cast<uint32_t>(words);
    return;
  }
  words -= left;
  const uint64_t blocks = (words + kWords - 1) / kWords;
  if (blocks >= kJumpFrom) {
    jump(engine.state_, blocks);
  } else {
    for (uint64_t i = 0; i < blocks; ++i) step(engine.state_);
  }
  const uint64_t drawn = words - (blocks - 1) * kWords;
  engine.next_ = static_cast<uint32_t>(drawn);
  engine.left_ = static_cast<int>(kWords + 1 - drawn);
}

void seed_quickly(at::CPUGeneratorImpl& generator, uint64_t seed) {
  thread_local at::mt19937 engine;
  at::mt19937_data_pod data{.seed_ = seed & 0xffffffffU,
                            .left_ = at::MERSENNE_STATE_N,
                            .seeded_ = true,
                            .next_ = 1,
                            .state_ = {}};
  for (size_t i = 0; i < data.state_.size(); i += 2) {
    seed += 0x9e3779b97f4a7c15ULL;
    uint64_t mixed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    mixed ^= mixed >> 31;
    data.state_[i] = static_cast<uint32_t>(mixed);
    data.state_[i + 1] = static_cast<uint32_t>(mixed >> 32);
  }
  engine.set_data(data);
  generator.set_engine(engine);
  generator.set_next_float_normal_sample(std::nullopt);
  generator.set_next_double_normal_sample(std::nullopt);
}

}  // namespace levin::detail
