#pragma once
// The TOML file of options: read by --config, written by --print-config. The inside of read_options. Not for users.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/options.h"

namespace levin::detail {

std::vector<std::string> names_of(const std::vector<Field>& fields);

/// False for an option without a default that was not given.
bool has_value(const Field& field);

/// Sets an option from a text that stands at `place`. Throws Error "base.options.value", which names both.
void set_field(const Field& field, std::string_view place, const std::string& text);

/// Sets the options of a file and returns their names; a key may have - for _. In the record of a run (hparams.toml),
/// keys that are no options are left out with a warning.
std::set<std::string> read_config(const std::string& file, const std::vector<Field>& fields);

/// Options outside of sections, then a table for each section.
std::string config_text(const std::vector<Field>& fields);

}  // namespace levin::detail
