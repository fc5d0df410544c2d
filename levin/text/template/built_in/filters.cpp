#include "levin/text/template/built_in/filters.h"

#include "levin/text/template/built_in/filter_tables.h"

namespace levin::text::jinja {

Function::Body find_filter(std::string_view name) {
  for (const auto& filters :
       {text_filters(), sequence_filters(), group_filters(), number_filters()}) {
    for (const Filter& filter : filters) {
      if (filter.name == name) return filter.body;
    }
  }
  return nullptr;
}

}  // namespace levin::text::jinja
