#pragma once
// Why names of weights are not those of a module: a prefix that one of both has, or other names.
// For the error of load_module_state.

#include <set>
#include <string>

namespace levin::detail {

/// missing: names that the module has and the weights lack; unexpected: the reverse. Returns ";
/// ..." with the name in the weights that resembles a missing one and advice, or empty if there is
/// nothing to say.
std::string name_hint(const std::set<std::string>& missing,
                      const std::set<std::string>& unexpected);

}  // namespace levin::detail
