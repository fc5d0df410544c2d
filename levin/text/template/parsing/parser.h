#pragma once
// Parser: a template's tokens as nodes.
// Not for users.
//
//   const Program program = parse(source);

#include <string_view>

#include "levin/text/template/parsing/nodes.h"

namespace levin::text::jinja {

/// Throws Error "text.template" with the line, or "text.template.depth" where it nests too deep.
Program parse(std::string_view source);

}  // namespace levin::text::jinja
