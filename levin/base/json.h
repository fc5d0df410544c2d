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

/// As deep as objects and arrays may stand in each other. The parser takes any depth, but what
/// walks over its tree calls itself at each level, and the stack ends somewhere.
constexpr int64_t kMaxJsonDepth = 500;

/// The text; an empty one, which is no JSON, where it nests deeper than that.
LEVIN_API std::string_view shallow_json(std::string_view text);

/// A text as TOML writes it. What is no UTF-8 is replaced, or gives nothing where it must not be.
std::string toml_string(const std::string& text);
std::optional<std::string> exact_toml_string(const std::string& text);

}  // namespace levin::detail
