#include "levin/base/options/placed_fields.h"

#include <algorithm>
#include <utility>

namespace levin {

bool stands_for(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

void PlacedFields::hand_on(FieldVisitor& to, std::initializer_list<std::string_view> patterns) {
  std::vector<Field> others;
  for (Field& field : std::exchange(left_, {})) {
    const bool is_wanted = std::ranges::any_of(
        patterns, [&](std::string_view pattern) { return stands_for(pattern, field.name); });
    is_wanted ? to.take(std::move(field)) : others.push_back(std::move(field));
  }
  left_ = std::move(others);
}

}  // namespace levin
