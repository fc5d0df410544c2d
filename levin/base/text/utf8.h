#pragma once
// Checks whether bytes are UTF-8. Not for users.
//
//   if (const auto at = invalid_utf8(line)) ...        // the place of the byte that is wrong

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "levin/base/export.h"

namespace levin::detail {

/// Returns the size and value of the first character of text, which is not empty; size 0 if the
/// bytes are invalid.
LEVIN_API std::pair<size_t, char32_t> first_character(std::string_view text);

/// The place of the first byte that begins no well-formed character.
LEVIN_API std::optional<size_t> invalid_utf8(std::string_view text);

}  // namespace levin::detail
