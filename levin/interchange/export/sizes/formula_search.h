#pragma once
// FormulaSearch: finds the formula of a number that recordings of several sizes have seen.
//
//   FormulaSearch search({{4, 16}, {5, 16}, {4, 17}});  // the dynamic dims in each recording
//   search.find({64, 80, 68});                           // dim 0 * dim 1
//
// Not for users.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/interchange/export/sizes/size_formula.h"

namespace levin::interchange {

/// A number's values, one a recording.
using Samples = std::vector<int64_t>;

class LEVIN_API FormulaSearch {
 public:
  /// points: by recording, the sizes of the dynamic dims.
  explicit FormulaSearch(std::vector<std::vector<int64_t>> points);

  /// Tries the candidates, what has been found before, and of these sums, products and quotients by a
  /// number. None where no formula, or no single one, gives the samples.
  std::optional<SizeFormula> find(const Samples& samples,
                                  std::span<const SizeFormula> candidates = {});

  /// A double that is a number times a formula, or a number divided by one.
  struct Real {
    double factor = 1;
    SizeFormula formula;
    bool is_divided = false;
  };
  std::optional<Real> find_real(std::span<const double> samples);

 private:
  /// A formula that has been found, and its values.
  struct Known {
    Samples samples;
    SizeFormula formula;
  };

  bool gives(const SizeFormula& formula, const Samples& samples) const;
  std::optional<SizeFormula> multiple_of(const Known& known, const Samples& samples) const;
  std::optional<SizeFormula> product(const Samples& samples) const;
  std::optional<Real> multiple_or_quotient(std::span<const double> samples) const;
  std::optional<SizeFormula> quotient(const Samples& samples) const;
  static std::optional<std::pair<int64_t, int64_t>> summand_of(const Known& known,
                                                               const Samples& samples,
                                                               int64_t divisor);
  static std::optional<SizeFormula> whole_ratio(const Known& known, const Samples& samples);
  std::optional<SizeFormula> polynomial(const Samples& samples) const;
  std::optional<SizeFormula> search(const Samples& samples,
                                    std::span<const SizeFormula> candidates) const;

  std::vector<std::vector<int64_t>> points_;
  std::vector<Known> known_;  ///< the dims first, then in the order in which they were found
  std::map<Samples, size_t> by_samples_;
};

}  // namespace levin::interchange
