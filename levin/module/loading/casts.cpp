#include "levin/module/loading/casts.h"

#include <fmt/format.h>

#include "levin/base/log.h"
#include "levin/base/options.h"

namespace levin::detail {

std::string joined_names(const std::set<std::string>& names) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown++ == 8) return text + fmt::format(", and {} more", names.size() - 8);
    text += (text.empty() ? "" : ", ") + printable(name);
  }
  return text;
}

void Casts::note(const std::string& name, at::ScalarType from, at::ScalarType to) {
  if (from != to) names_[{from, to}].insert(name);
}

std::string Casts::text() const {
  std::string text;
  for (const auto& [types, names] : names_) {
    text +=
        fmt::format("{}{} {} cast from {} to the module's {} ({})", text.empty() ? "" : "; ",
                    names.size(), names.size() == 1 ? "tensor is" : "tensors are",
                    c10::toString(types.first), c10::toString(types.second), joined_names(names));
  }
  return text;
}

void Casts::warn(std::string_view what) const {
  if (!names_.empty()) log::warn("{}: {}", what, text());
}

void Casts::tell(std::string_view what) const {
  if (!names_.empty()) log::info("{}: {}", what, text());
}

}  // namespace levin::detail
