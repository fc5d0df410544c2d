#pragma once
// Closed lists of the keys of tokenizer.json, tokenizer_config.json and special_tokens_map.json. Not for users.
//
//   warn_of_unknown_fields(file.root(), "minilm/tokenizer.json");

#include <string>

#include "levin/text/reading/component.h"

namespace levin::text {

/// One warning that names the fields of tokenizer.json's components which levin does not know.
void warn_of_unknown_fields(const Component& file, const std::string& origin);

/// The same for a folder's other files. Throws Error "text.component" for a value that would change tokens or text, and
/// that levin does not have.
void check_config_keys(const Component& config, const std::string& origin);
void check_map_keys(const Component& map, const std::string& origin);

}  // namespace levin::text
