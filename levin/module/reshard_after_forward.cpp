#include "levin/module/reshard_after_forward.h"

#include <charconv>

#include "levin/base/check.h"

namespace levin {

int64_t ReshardAfterForward::check(int64_t ranks) {
  LEVIN_CHECK(ranks > 0, "base.text",
              "got {} for reshard_after_forward, wanted true, false or a number of ranks", ranks);
  return ranks;
}

std::string to_text(const ReshardAfterForward& value) {
  if (!value.is_set()) return "";
  return value.ranks_ == 0 ? "true" : value.ranks_ == 1 ? "false" : std::to_string(value.ranks_);
}

void from_text(std::string_view text, ReshardAfterForward& value) {
  if (text.empty()) {
    value = {};
  } else if (text == "true" || text == "false") {
    value = ReshardAfterForward(text == "true");
  } else {
    int64_t ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    LEVIN_CHECK(error == std::errc() && end == text.data() + text.size() && ranks > 0, "base.text",
                "got '{}', wanted true, false or a number of ranks", text);
    value = ReshardAfterForward(ranks);
  }
}

}  // namespace levin
