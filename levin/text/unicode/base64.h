#pragma once
// base64: how tokenizer.json keeps a Precompiled map of characters, and levin its own tables.
//
//   const std::string bytes = from_base64("YWJj").value();

#include <optional>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::text {

/// Nothing where the text is no base64 with its padding.
LEVIN_API std::optional<std::string> from_base64(std::string_view text);

}  // namespace levin::text
