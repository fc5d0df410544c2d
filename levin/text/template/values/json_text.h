#pragma once
// JSON into values, and values as JSON in the way of Python's json.dumps.
// Not for users.
//
//   json_text(run, value, {.indent = "  "});

#include <optional>
#include <string>
#include <string_view>

#include "levin/base/export.h"
#include "levin/text/template/values/run.h"

namespace levin::text::jinja {

/// Throws Error "text.chat" where it is no JSON; `what` names it.
LEVIN_API Value read_json(Run& run, std::string_view text, std::string_view what);

struct JsonOptions {
  bool ensure_ascii = false;
  std::optional<std::string> indent;
  std::string between_items = ", ";
  std::string between_key_and_value = ": ";
  bool sort_keys = false;
};

std::string json_text(Run& run, const Value& value, const JsonOptions& options);

}  // namespace levin::text::jinja
