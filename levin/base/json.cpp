#include "levin/base/json.h"

#include <nlohmann/json.hpp>

namespace levin::detail {
namespace {

/// A JSON string is a TOML basic string, but that TOML wants DEL escaped too.
std::string quoted(const std::string& text, nlohmann::json::error_handler_t handler) {
  std::string quoted = nlohmann::json(text).dump(-1, ' ', false, handler);
  for (size_t at = 0; (at = quoted.find('\x7f', at)) != std::string::npos;) {
    quoted.replace(at, 1, "\\u007F");
  }
  return quoted;
}

}  // namespace

std::string_view shallow_json(std::string_view text) {
  int64_t depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_text = !in_text;
    if (in_text) {
      if (c == '\\') ++i;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxJsonDepth) return {};
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return text;
}

std::string toml_string(const std::string& text) {
  return quoted(text, nlohmann::json::error_handler_t::replace);
}

std::optional<std::string> exact_toml_string(const std::string& text) {
  try {
    return quoted(text, nlohmann::json::error_handler_t::strict);
  } catch (const nlohmann::json::type_error&) {
    return std::nullopt;
  }
}

}  // namespace levin::detail
