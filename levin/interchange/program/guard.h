#pragma once
// Guard: a relation of the inputs' sizes that torch.export took for granted, "L['x'].size()[0] % 2 == 0".
// A Program has their text; ProgramInputs checks them in each call.
// Not for users.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/interchange/program/expression.h"

namespace levin::interchange {

/// A number of an input that a guard speaks of.
struct LEVIN_API GuardSource {
  enum class Kind { kSize, kStride, kOffset, kNumber };
  std::string input;  ///< "batch.image", as PyTree::leaf_names has it
  Kind kind = Kind::kSize;
  int64_t dim = 0;  ///< dim of kSize and kStride

  /// "x.size(0)"
  std::string text() const;
};

class LEVIN_API Guard {
 public:
  /// A symbol's name or a number for a source; none where the program has no such input.
  using NameOf = std::function<std::optional<std::string>(const GuardSource&)>;
  /// text: Python's, comparisons of sizes. None where levin cannot read it: `or`, fractions, functions
  /// that it does not know.
  static std::optional<Guard> parse(std::string_view text, const NameOf& name_of);

  bool holds(const Symbols& symbols) const;
  /// Returns whether it says nothing: both sides are the same.
  bool is_trivial() const;
  /// "x.size(0) % 2 == 0"
  const std::string& text() const { return text_; }
  /// Names of the symbols.
  std::vector<std::string> symbols() const;

 private:
  struct Relation {
    Expression left;
    std::string comparison;  ///< "==", "!=", "<", "<=", ">", ">="
    Expression right;
  };
  bool add_relations(std::string_view text);

  std::string text_;
  std::vector<Relation> relations_;  ///< all of them hold
};

}  // namespace levin::interchange
