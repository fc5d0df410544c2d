#pragma once
// A JSON document as YAML for people: in blocks, lists of words on one line.

#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::launch::detail {

/// `json` is an object, whose members keep their order; the text ends with a line's end.
LEVIN_API std::string yaml_of(std::string_view json);

}  // namespace levin::launch::detail
