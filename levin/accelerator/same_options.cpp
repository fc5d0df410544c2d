#include "levin/accelerator/same_options.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/state.h"
#include "levin/base/text.h"

namespace levin::detail {
namespace {

bool stands_for(const std::string& pattern, const std::string& name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

}  // namespace

void check_same_options(comm::ProcessGroup& world,
                        const std::map<std::string, std::string>& options,
                        const std::vector<std::string>& own) {
  if (world.size() == 1) return;
  State mine;
  for (const auto& [name, value] : options) {
    const auto is_own = [&](const std::string& pattern) { return stands_for(pattern, name); };
    if (std::ranges::none_of(own, is_own)) mine.set(name, value);
  }
  const std::vector<State> ranks = world.all_gather(mine);
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    for (const auto& [name, value] : ranks.front().values()) {
      const std::string first = ranks.front().text(name);
      const std::string other = ranks[rank].contains(name) ? ranks[rank].text(name) : "nothing";
      LEVIN_CHECK(
          first == other, "accelerator.options",
          "rank {} has {} = '{}' and rank 0 has '{}'; start every rank with the same options", rank,
          name, printable(other), printable(first));
    }
  }
}

}  // namespace levin::detail
