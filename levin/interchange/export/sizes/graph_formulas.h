#pragma once
// GraphFormulas: the formula of each number of a graph that is not the same at all sizes.
// Not for users.

#include <cstdint>
#include <optional>
#include <vector>

#include "levin/interchange/export/record/recordings.h"
#include "levin/interchange/export/sizes/formula_search.h"

namespace levin::interchange {

/// A number of a constant argument.
struct NumberFormula {
  bool is_real = false;
  SizeFormula whole;                        ///< formula of an integer
  std::optional<FormulaSearch::Real> real;  ///< formula of a real that is not constant
};

class GraphFormulas {
 public:
  /// The first recording's calls that count are marked in `is_used`. Throws Error
  /// "interchange.export.size" for a number that is no single formula of the dynamic dims.
  GraphFormulas(const Recordings& recordings, const std::vector<Symbol>& symbols,
                const std::vector<bool>& is_used);

  const std::vector<SizeFormula>& sizes(ValueId id) const { return sizes_[id]; }
  const std::vector<SizeFormula>& strides(ValueId id) const { return strides_[id]; }
  /// By call and argument: the numbers of its constant.
  const std::vector<NumberFormula>& numbers(size_t call, size_t argument) const {
    return numbers_[call][argument];
  }
  const std::vector<NumberFormula>& output_numbers(size_t output) const {
    return output_numbers_[output];
  }

 private:
  void find_sizes(ValueId id, const RecordedCall* call);
  void find_strides(ValueId id);
  std::vector<NumberFormula> find_numbers(const std::vector<const c10::IValue*>& constants,
                                          const std::string& where);
  [[noreturn]] void fail(const std::string& what, const Samples& samples,
                         const RecordedCall* call) const;

  const Recordings& recordings_;
  const std::vector<Symbol>& symbols_;
  FormulaSearch search_;
  std::vector<std::vector<SizeFormula>> sizes_;
  std::vector<std::vector<SizeFormula>> strides_;
  std::vector<std::vector<std::vector<NumberFormula>>> numbers_;
  std::vector<std::vector<NumberFormula>> output_numbers_;
};

}  // namespace levin::interchange
