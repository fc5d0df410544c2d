#pragma once
// Finds where a grapheme ends. A reader takes it for one character (extended grapheme clusters, UAX
// 29). Not for users.

#include <cstddef>
#include <string_view>

#include "levin/base/export.h"

namespace levin::text::unicode {

/// The end of the grapheme that begins at `at`, which is inside of the text.
LEVIN_API size_t grapheme_end(std::string_view text, size_t at);

}  // namespace levin::text::unicode
