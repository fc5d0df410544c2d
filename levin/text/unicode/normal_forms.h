#pragma once
// NFC, NFD, NFKC and NFKD as a stream of code points that remember what they replace.
// Not for users.
//
//   std::vector<Change> changes;
//   normalize("e\u0301", NormalForm::kNfc, changes);   // one Change: U+00E9, -1

#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::text::unicode {

/// A code point of the new text. replaces is 0 where it takes the place of the next one of the old
/// text, 1 where it is put in, and -n where it takes n more with it.
struct Change {
  char32_t c;
  int replaces;
};

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// Returns whether the text may differ in this form. The test is cheap, and true for some texts
/// that do not change.
LEVIN_API bool may_change(std::string_view text, NormalForm form);

LEVIN_API void normalize(std::string_view text, NormalForm form, std::vector<Change>& changes);

}  // namespace levin::text::unicode
