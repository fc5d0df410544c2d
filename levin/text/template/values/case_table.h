#pragma once
// Upper and title case of each code point, as Python has them (tests/oracle/case_table.py).
// Not for users.
//
//   append_case(kUpperTable, c, text);

#include <cstdint>
#include <span>

namespace levin::text::jinja {

/// Code points from first to last that go equally far.
struct CaseRun {
  char32_t first;
  char32_t last;
  uint32_t step;
  int32_t distance;
};

/// One that becomes several, with zeros behind.
struct CaseSpelling {
  char32_t code;
  char32_t text[3];
};

struct CaseTable {
  std::span<const CaseRun> runs;
  std::span<const CaseSpelling> spellings;
};

extern const CaseTable kUpperTable;
extern const CaseTable kTitleTable;  // code points whose title case is not their upper case

}  // namespace levin::text::jinja
