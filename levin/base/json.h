#pragma once
// JSON and TOML that somebody else may have written, or is to read.
// Not for users.
//
//   const json manifest = json::parse(shallow_json(text), nullptr, /*allow_exceptions=*/false);

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::detail {

/// The deepest nesting of objects and arrays. The parser takes any depth, but code that walks over
/// its tree recurses at each level, and the stack is limited.
constexpr int64_t kMaxJsonDepth = 500;

/// The text; an empty one, which is no JSON, where it nests deeper than that.
LEVIN_API std::string_view shallow_json(std::string_view text);

/// Writes a text as TOML. toml_string replaces bytes that are no UTF-8; exact_toml_string returns
/// nothing for them.
std::string toml_string(const std::string& text);
std::optional<std::string> exact_toml_string(const std::string& text);

}  // namespace levin::detail
