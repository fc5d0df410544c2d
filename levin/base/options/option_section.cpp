#include "levin/base/options/option_section.h"

namespace levin {

void OptionSection::Renaming::visit(Field field) {
  if (field.name.empty()) return;  // a heading
  const std::string own = field.name;
  field.name = section_.name_ + "." + own;
  field.letter.clear();
  auto& given = section_.given_;
  field.set = [&given, own, set = std::move(field.set)](std::string_view text) {
    set(text);
    given.insert(own);
  };
  field.is_given = [&given, own] { return given.contains(own); };
  to_.take(std::move(field));
}

}  // namespace levin
