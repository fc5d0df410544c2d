#pragma once
// changed_flags: which options somebody has changed, for errors of a strategy that they are not of.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/options.h"

namespace levin {

/// Returns the flags of options that differ from their defaults; "" if there are none.
template <class Options>
std::string changed_flags(const Options& options) {
  const auto usual = options_as_text(Options{});
  std::vector<std::string> changed;
  for (const auto& [name, value] : options_as_text(options)) {
    std::string flag = "--" + name;
    std::ranges::replace(flag, '_', '-');
    if (usual.at(name) != value) changed.push_back(std::move(flag));
  }
  return changed.empty() ? "" : to_text(changed);
}

}  // namespace levin
