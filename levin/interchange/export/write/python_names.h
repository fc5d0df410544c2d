#pragma once
// Names that a program of torch.export can have in Python.
// Not for users.

#include <string_view>

namespace levin::interchange {

/// Returns whether forward can have an argument of that name: letters, digits and underscores, no word of the language, and
/// none of the names by which the code that Python makes of a graph finds its modules.
bool can_be_argument(std::string_view name);

/// Returns whether each part of "layers.0.weight" can be an attribute of a module, beside
/// torch.nn.Module's own.
bool can_be_attribute(std::string_view path);

}  // namespace levin::interchange
