#include "levin/module/loading/name_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "levin/base/options.h"

namespace levin::detail {
namespace {

/// Prefixes and infixes that wrappers in Python add to names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kWrappers = {{
    {"_orig_mod.", "torch.compile"},
    {"module.", "DistributedDataParallel"},
    {"_fsdp_wrapped_module.", "FullyShardedDataParallel"},
    {"_checkpoint_wrapped_module.", "checkpoint_wrapper"},
    {"model.", "a LightningModule whose member it is"},
}};

std::string without(std::string text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) {
    if (at == 0 || text[at - 1] == '.') {
      text.erase(at, part.size());
    } else {
      at += part.size();
    }
  }
  return text;
}

struct Match {
  std::string prefix;
  std::string longer, shorter;  ///< an example
  size_t count = 0;
};

/// The prefix that makes most of `longer` of names in `shorter`.
Match most_common(const std::set<std::string>& longer, const std::set<std::string>& shorter) {
  std::map<std::string, Match> matches;
  for (const std::string& name : longer) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const std::string tail = name.substr(dot + 1);
      if (!shorter.contains(tail)) continue;
      Match& match = matches[name.substr(0, dot + 1)];
      if (match.count++ == 0) match = {name.substr(0, dot + 1), name, tail, 1};
    }
  }
  const auto most =
      std::ranges::max_element(matches, {}, [](const auto& entry) { return entry.second.count; });
  return most == matches.end() ? Match() : most->second;
}

std::string first_names(const std::set<std::string>& names) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown++ == 4) return text + fmt::format(", and {} more", names.size() - 4);
    text += (text.empty() ? "" : ", ") + printable(name);
  }
  return text;
}

}  // namespace

std::string name_hint(const std::set<std::string>& missing,
                      const std::set<std::string>& unexpected) {
  if (missing.empty() || unexpected.empty()) return "";
  if (const Match match = most_common(unexpected, missing); match.count * 2 > missing.size()) {
    std::string by;
    for (const auto& [part, wrapper] : kWrappers) {
      if (match.prefix == part) by = fmt::format(", as {} saves them", wrapper);
    }
    return fmt::format(
        "; {} of the weights have the prefix '{}'{}: {} for {}; remove it from the names before "
        "loading",
        match.count, printable(match.prefix), by, printable(match.longer), match.shorter);
  }
  if (const Match match = most_common(missing, unexpected); match.count * 2 > missing.size()) {
    return fmt::format(
        "; {} of the weights lack the prefix '{}': {} for {}; load them into that submodule, or "
        "add the prefix to their names",
        match.count, match.prefix, printable(match.shorter), match.longer);
  }
  for (const auto& [part, wrapper] : kWrappers) {
    for (const std::string& name : unexpected) {
      if (std::string own = without(name, part); own != name && missing.contains(own)) {
        return fmt::format(
            "; the weights have '{}' within names, as {} saves them: {} for {}; remove it from the "
            "names before loading",
            part, wrapper, printable(name), own);
      }
    }
  }
  return fmt::format("; instead, the weights have {}", first_names(unexpected));
}

}  // namespace levin::detail
