#pragma once
// DynamicSizes: at which sizes of its dynamic dims a module is recorded, and its example at those.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/data/batch.h"
#include "levin/interchange/export_program.h"

namespace levin::interchange {

/// Dims of inputs that have one size.
struct Symbol {
  std::string name;                              ///< "s0"
  std::string text;                              ///< for errors: "image dim 0"
  std::vector<std::pair<size_t, int64_t>> dims;  ///< input and dim
  int64_t size = 0;                              ///< size in the first recording
  int64_t multiple_of = 1;
  std::optional<int64_t> min;
  std::optional<int64_t> max;
};

/// By symbol.
using Point = std::vector<int64_t>;

class DynamicSizes {
 public:
  /// Throws Error "interchange.export.input".
  DynamicSizes(const Batch& example, const std::vector<DynamicDim>& dynamic);

  std::vector<Symbol>& symbols() { return symbols_; }
  const std::vector<Symbol>& symbols() const { return symbols_; }
  /// Returns the first recording's sizes, then sizes that tell formulas apart: each symbol at four
  /// others, and two points at which all differ.
  std::vector<Point> points() const;
  /// The example with its rows repeated, or fewer of them.
  std::vector<at::Tensor> inputs_at(const Point& point) const;
  /// The first example's sizes with other values: its elements in the reverse order, reals smaller too.
  std::vector<at::Tensor> inputs_of_other_values() const;

 private:
  Symbol& symbol_of(const DynamicDim& dynamic, size_t input, const Batch& example);
  void limit(Symbol& symbol, const DynamicDim& dynamic) const;
  std::vector<int64_t> other_sizes(const Symbol& symbol) const;

  std::vector<at::Tensor> example_;
  std::vector<Symbol> symbols_;
  std::vector<std::string> names_;  ///< the user's, of symbols_; empty: none
};

}  // namespace levin::interchange
