#pragma once
// PlacedFields: the options of an aggregate, in the order and under the headings of another one that holds it.
//
//   levin::PlacedFields engine_fields(engine);
//   levin::option_group(field, "compilation");
//   engine_fields.hand_on(field, {"compile*"});
//   levin::option_group(field, "");
//   engine_fields.hand_on(field, {"*"});  // all others, so that a new one is not forgotten

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin {

/// True where the pattern is the option's name, or its beginning and a '*' ("ddp_*").
LEVIN_API bool stands_for(std::string_view pattern, std::string_view name);

class LEVIN_API PlacedFields final : public FieldVisitor {
 public:
  template <class Options>
  explicit PlacedFields(Options& options) {
    options.fields(*this);
  }

  /// Hands on, in the order of the aggregate, the options that a pattern stands for and that were not handed on
  /// before.
  void hand_on(FieldVisitor& to, std::initializer_list<std::string_view> patterns);

 private:
  void visit(Field field) override { left_.push_back(std::move(field)); }

  std::vector<Field> left_;
};

}  // namespace levin
