#pragma once
// Random numbers of transforms: the same on every machine, which the distributions of the standard
// library are not. Not for users.
//
//   TransformDraws draws(seeds[i]);
//   const bool flips = draws.uniform() < 0.5;

#include <cstdint>
#include <random>

namespace levin::data {

class TransformDraws {
 public:
  explicit TransformDraws(uint64_t seed) : random_(seed) {}
  /// In [0, 1).
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  /// In [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// In [0, count), for a count of at most 2^31.
  int64_t below(int64_t count) {
    return static_cast<int64_t>(uniform() * static_cast<double>(count));
  }
  /// Beta(alpha, alpha).
  double beta(double alpha);

 private:
  double normal();
  double gamma(double alpha);

  std::mt19937_64 random_;
};

}  // namespace levin::data
