#pragma once
// Pattern: what Split and Replace look for: a text, or an expression of Oniguruma's. Expressions that many
// tokenizers have are scanned by code written for them (scanners), others by a general matcher.
// Not for users.
//
//   std::vector<Bytes> found;
//   read_pattern(component)->find("a b", found);

#include <memory>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/text/reading/component.h"
#include "levin/text/working/working_text.h"

namespace levin::text {

class Pattern {
 public:
  virtual ~Pattern() = default;
  /// Appends the matches from left to right, places in this text.
  virtual void find(std::string_view text, std::vector<Bytes>& matches) const = 0;
  /// Returns whether a match may be empty.
  virtual bool may_be_empty() const { return false; }
};

using PatternPtr = std::unique_ptr<const Pattern>;

/// Reads {"String": text} or {"Regex": expression}. Throws Error "text.pattern" for an expression
/// that is malformed, or that levin does not know.
PatternPtr read_pattern(const Component& component);

/// Returns nullptr if the expression has no scanner.
LEVIN_API PatternPtr known_scanner(std::string_view expression);

/// The general matcher.
LEVIN_API PatternPtr compile_expression(std::string_view expression);

/// ByteLevel's own.
const Pattern& gpt2_pattern();

}  // namespace levin::text
