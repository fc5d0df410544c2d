#include "levin/interchange/export/sizes/formula_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace levin::interchange {
namespace {

constexpr int64_t kLargestDivisor = 64;
/// Polynomials have a term for each set of dims.
constexpr size_t kMostDynamicDims = 4;
/// A number that C++ computed in float and stored in double is off by as much.
constexpr double kFloatError = 2e-7;
constexpr double kLargestSize = 9e15;

/// The whole numbers with factors * solution = values, by Gauss; none where there is no single one.
std::optional<std::vector<int64_t>> solve(std::vector<std::vector<double>> rows, size_t count) {
  size_t rank = 0;
  for (size_t column = 0; column < count; ++column) {
    size_t best = rank;
    for (size_t row = rank; row < rows.size(); ++row) {
      if (std::abs(rows[row][column]) > std::abs(rows[best][column])) best = row;
    }
    if (best >= rows.size() || std::abs(rows[best][column]) < 1e-9) return std::nullopt;
    std::swap(rows[rank], rows[best]);
    for (size_t row = 0; row < rows.size(); ++row) {
      if (row == rank) continue;
      const double factor = rows[row][column] / rows[rank][column];
      for (size_t i = column; i <= count; ++i) rows[row][i] -= factor * rows[rank][i];
    }
    ++rank;
  }
  std::vector<int64_t> solution;
  for (size_t i = 0; i < count; ++i) {
    solution.push_back(std::llround(rows[i][count] / rows[i][i]));
  }
  return solution;
}

}  // namespace

FormulaSearch::FormulaSearch(std::vector<std::vector<int64_t>> points)
    : points_(std::move(points)) {
  for (size_t i = 0; i < points_.front().size(); ++i) {
    Samples samples;
    for (const auto& point : points_) samples.push_back(point[i]);
    // Dims that are always of one size would be one formula: export_program varies each.
    if (by_samples_.emplace(samples, known_.size()).second) {
      known_.push_back({std::move(samples), SizeFormula::dim(i)});
    }
  }
}

bool FormulaSearch::gives(const SizeFormula& formula, const Samples& samples) const {
  for (size_t i = 0; i < samples.size(); ++i) {
    if (formula.value(points_[i]) != samples[i]) return false;
  }
  return true;
}

std::optional<SizeFormula> FormulaSearch::find(const Samples& samples,
                                               std::span<const SizeFormula> candidates) {
  if (std::ranges::all_of(samples, [&](int64_t each) { return each == samples.front(); })) {
    return samples.front();
  }
  if (const auto found = by_samples_.find(samples); found != by_samples_.end()) {
    return known_[found->second].formula;
  }
  auto formula = search(samples, candidates);
  if (formula) {
    by_samples_.emplace(samples, known_.size());
    known_.push_back({samples, *formula});
  }
  return formula;
}

std::optional<SizeFormula> FormulaSearch::search(const Samples& samples,
                                                 std::span<const SizeFormula> candidates) const {
  for (const SizeFormula& candidate : candidates) {
    if (gives(candidate, samples)) return candidate;
  }
  for (const Known& known : known_) {
    if (auto formula = multiple_of(known, samples)) return formula;
  }
  if (auto formula = product(samples)) return formula;
  if (auto formula = polynomial(samples)) return formula;
  return quotient(samples);
}

/// factor * known + summand
std::optional<SizeFormula> FormulaSearch::multiple_of(const Known& known,
                                                      const Samples& samples) const {
  for (size_t i = 1; i < samples.size(); ++i) {
    const int64_t step = known.samples[i] - known.samples[0];
    if (step == 0) continue;
    const int64_t rise = samples[i] - samples[0];
    if (rise % step != 0 || rise == 0) return std::nullopt;
    const int64_t factor = rise / step;
    SizeFormula formula = known.formula * factor + (samples[0] - factor * known.samples[0]);
    if (gives(formula, samples)) return formula;
    return std::nullopt;
  }
  return std::nullopt;
}

/// factor * known * other
std::optional<SizeFormula> FormulaSearch::product(const Samples& samples) const {
  for (size_t i = 0; i < known_.size(); ++i) {
    for (size_t j = i; j < known_.size(); ++j) {
      const int64_t both = known_[i].samples[0] * known_[j].samples[0];
      if (both == 0 || samples[0] % both != 0) continue;
      SizeFormula formula = known_[i].formula * known_[j].formula * (samples[0] / both);
      if (gives(formula, samples)) return formula;
    }
  }
  return std::nullopt;
}

/// A sum of products of dims.
std::optional<SizeFormula> FormulaSearch::polynomial(const Samples& samples) const {
  const size_t num_dims = points_.front().size();
  if (num_dims > kMostDynamicDims) return std::nullopt;
  const size_t num_terms = size_t{1} << num_dims;
  // One recording more than unknown factors, that checks them.
  if (num_terms >= points_.size()) return std::nullopt;
  std::vector<std::vector<double>> rows;
  for (size_t i = 0; i < samples.size(); ++i) {
    std::vector<double> row;
    for (size_t term = 0; term < num_terms; ++term) {
      double product = 1;
      for (size_t dim = 0; dim < num_dims; ++dim) {
        if ((term >> dim & 1) != 0) product *= static_cast<double>(points_[i][dim]);
      }
      row.push_back(product);
    }
    row.push_back(static_cast<double>(samples[i]));
    rows.push_back(std::move(row));
  }
  const auto factors = solve(std::move(rows), num_terms);
  if (!factors) return std::nullopt;
  SizeFormula sum = 0;
  for (size_t term = 0; term < num_terms; ++term) {
    if ((*factors)[term] == 0) continue;
    SizeFormula product = (*factors)[term];
    for (size_t dim = 0; dim < num_dims; ++dim) {
      if ((term >> dim & 1) != 0) product = product * SizeFormula::dim(dim);
    }
    sum = sum + product;
  }
  if (!gives(sum, samples)) return std::nullopt;
  return sum;
}

/// Returns (known + summand) // divisor. If several formulas fit there is none: they differ at
/// sizes that were not recorded.
std::optional<SizeFormula> FormulaSearch::quotient(const Samples& samples) const {
  for (const Known& known : known_) {
    std::optional<SizeFormula> found;
    for (int64_t divisor = 2; divisor <= kLargestDivisor; ++divisor) {
      const auto summand = summand_of(known, samples, divisor);
      if (!summand) continue;
      if (found || summand->first != summand->second) return std::nullopt;
      found = floor_div(known.formula + summand->first, divisor);
    }
    if (found) return found;
    if (auto ratio = whole_ratio(known, samples)) return ratio;
  }
  return std::nullopt;
}

/// The least and the largest summand with (known + summand) // divisor = samples.
std::optional<std::pair<int64_t, int64_t>> FormulaSearch::summand_of(const Known& known,
                                                                     const Samples& samples,
                                                                     int64_t divisor) {
  constexpr int64_t kAny = int64_t{1} << 62;
  int64_t least = -kAny, most = kAny;
  bool is_multiple = true;
  for (size_t i = 0; i < samples.size(); ++i) {
    least = std::max(least, samples[i] * divisor - known.samples[i]);
    most = std::min(most, samples[i] * divisor + divisor - 1 - known.samples[i]);
    is_multiple = is_multiple && known.samples[i] % divisor == 0;
  }
  if (least > most) return std::nullopt;
  if (is_multiple && least <= 0 && most >= 0) return std::pair<int64_t, int64_t>(0, 0);
  return std::pair(least, most);
}

/// factor * known // divisor, where nothing is left over: [4, 6] seen as [6, 4].
std::optional<SizeFormula> FormulaSearch::whole_ratio(const Known& known, const Samples& samples) {
  if (known.samples[0] == 0) return std::nullopt;
  const int64_t common = std::gcd(samples[0], known.samples[0]);
  const int64_t factor = samples[0] / common, divisor = known.samples[0] / common;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] * divisor != known.samples[i] * factor) return std::nullopt;
  }
  return floor_div(known.formula * factor, divisor);
}

std::optional<FormulaSearch::Real> FormulaSearch::find_real(std::span<const double> samples) {
  for (const bool is_divided : {false, true}) {
    Samples whole;
    for (const double sample : samples) {
      const double number = is_divided ? 1 / sample : sample;
      const double rounded = std::round(number);
      if (std::abs(rounded) >= kLargestSize || rounded == 0 ||
          std::abs(number - rounded) > kFloatError * std::abs(rounded)) {
        break;
      }
      whole.push_back(static_cast<int64_t>(rounded));
    }
    if (whole.size() != samples.size()) continue;
    if (const auto formula = find(whole)) return Real{1, *formula, is_divided};
  }
  return multiple_or_quotient(samples);
}

std::optional<FormulaSearch::Real> FormulaSearch::multiple_or_quotient(
    std::span<const double> samples) const {
  for (const Known& known : known_) {
    for (const bool is_divided : {false, true}) {
      const auto factor = [&](size_t i) {
        const auto size = static_cast<double>(known.samples[i]);
        return is_divided ? samples[i] * size : samples[i] / size;
      };
      bool fits = factor(0) != 0;
      for (size_t i = 0; i < samples.size(); ++i) {
        fits = fits && known.samples[i] != 0 &&
               std::abs(factor(i) - factor(0)) <= kFloatError * std::abs(factor(0));
      }
      if (!fits) continue;
      // 1.0000000149 was 1 before it was divided in float.
      const double whole = std::round(factor(0));
      const bool is_whole = std::abs(factor(0) - whole) <= kFloatError * std::abs(whole);
      return Real{is_whole ? whole : factor(0), known.formula, is_divided};
    }
  }
  return std::nullopt;
}

}  // namespace levin::interchange
