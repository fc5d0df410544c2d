#include <algorithm>

#include "levin/text/template/built_in/filter_tables.h"

namespace levin::text::jinja {

Function::Body find_in(std::span<const BuiltIn> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &BuiltIn::name);
  return found == table.end() ? nullptr : found->body;
}

Function::Body find_filter(std::string_view name) {
  for (const auto& filters :
       {text_filters(), sequence_filters(), group_filters(), number_filters()}) {
    if (const auto found = find_in(filters, name)) return found;
  }
  return nullptr;
}

}  // namespace levin::text::jinja
