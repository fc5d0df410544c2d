#pragma once
// CodeSet: a set of code points, built from ranges, asked in constant time below U+10000.
// Not for users.
//
//   CodeSet set({{'a', 'z' + 1}});
//   set.has('b');

#include <cstdint>
#include <vector>

#include "levin/text/unicode/unicode.h"

namespace levin::text {

using unicode::Range;
using unicode::Ranges;

/// Sorted, without overlaps.
Ranges united(const Ranges& a, const Ranges& b);
Ranges intersected(const Ranges& a, const Ranges& b);
Ranges complement(const Ranges& ranges);
/// Adds the code points that equal others under (?i).
Ranges with_other_case(const Ranges& ranges);

class CodeSet {
 public:
  CodeSet() = default;
  explicit CodeSet(Ranges ranges);

  bool has(char32_t c) const {
    if (c < 0x10000) return bits_[c >> 6] >> (c & 63) & 1;
    return has_beyond(c);
  }
  const Ranges& ranges() const { return ranges_; }

 private:
  bool has_beyond(char32_t c) const;

  Ranges ranges_;
  std::vector<uint64_t> bits_;
};

}  // namespace levin::text
