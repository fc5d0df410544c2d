#pragma once
// Expression: the size of a dim as a formula of symbols, as torch.export writes it.
// A Program has them for the sizes of its inputs; a call's sizes give the symbols their values.
//
//   const Expression twice = Expression::parse("Mul(Integer(2), Symbol('s0', integer=True))");
//   twice.value({{"s0", 4}});  // 8
//   twice.solve(8, {});        // {"s0", 4}

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin::interchange {

using Symbols = std::map<std::string, int64_t, std::less<>>;

class LEVIN_API Expression {
 public:
  /// sympy's srepr ("Add(Symbol('s0'), Integer(1))") or its str ("s0 + 1"). Throws Error
  /// "interchange.archive" for text that is neither, or nests deeper than 100.
  static Expression parse(std::string_view text);

  /// Returns nothing if a symbol has no value, a function is not known, or the result is no
  /// integer.
  std::optional<int64_t> value(const Symbols& symbols) const;
  /// The value of the one symbol that is missing in `symbols`, where the expression is linear in it
  /// and has that size; none otherwise.
  std::optional<std::pair<std::string, int64_t>> solve(int64_t size, const Symbols& symbols) const;
  /// Returns whether all of its functions are known.
  bool is_computable() const;
  bool is_symbol() const { return kind_ == Kind::kSymbol; }
  /// Names of the symbols.
  std::vector<std::string> symbols() const;
  /// "2*s0", for errors.
  std::string text() const;

 private:
  class Parser;
  enum class Kind { kNumber, kSymbol, kCall };

  void add_symbols(std::vector<std::string>& names) const;

  Kind kind_ = Kind::kNumber;
  int64_t number_ = 0;
  std::string name_;  ///< name of the symbol or the function
  std::vector<Expression> arguments_;
};

}  // namespace levin::interchange
