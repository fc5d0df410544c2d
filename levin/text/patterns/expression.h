#pragma once
// An expression as a tree, between the parser and the matcher. Not for users.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "levin/text/patterns/code_set.h"

namespace levin::text {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    kSequence,      // its parts, one after another
    kAlternatives,  // parts, in their order
    kSet,           // one code point of `set`
    kRepeat,        // parts[0], from least to most times
    kAtomic,        // parts[0], and no way back into it
    kLookAhead,     // parts[0]; with `negated` none of it
    kLookBehind,
    kLineBegin,
    kLineEnd,
    kTextBegin,
    kTextEnd,      // \z
    kTextLastEnd,  // \Z: there, or at a line feed there
    kWordBorder    // with `negated` \B
  };
  enum class Greed { kGreedy, kLazy, kPossessive };

  Kind kind = Kind::kSequence;
  std::vector<ExpressionPtr> parts;
  Ranges set;
  int least = 0;
  int most = 0;  // -1: any number
  Greed greed = Greed::kGreedy;
  bool negated = false;

  /// Returns the number of code points of each match, if it is the same for all.
  std::optional<int> width() const;
};

/// In the syntax that Oniguruma calls Ruby's. Throws Error "text.pattern" with the place of what is
/// malformed or is not known here: captures that are referred to, \X, \G, \K, absent groups, conditions.
ExpressionPtr parse_expression(std::string_view expression);

}  // namespace levin::text
