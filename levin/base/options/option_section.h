#pragma once
// OptionSection: the options of an aggregate under a name of its own, "early_stopping.patience". In TOML they are a
// table. A section whose options were not given is neither printed nor recorded. Not for users.
//
//   levin::OptionSection section("early_stopping");
//   section.fields(field, early_stopping_options);

#include <set>
#include <string>
#include <utility>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin {

class LEVIN_API OptionSection {
 public:
  explicit OptionSection(std::string name) : name_(std::move(name)) {}

  /// Both the section and the options must outlive the visit.
  template <class Options>
  void fields(FieldVisitor& to, Options& options) {
    Renaming renaming(*this, to);
    options.fields(renaming);
  }
  const std::string& name() const { return name_; }
  /// Returns whether any of the options got a value.
  bool is_given() const { return !given_.empty(); }

 private:
  class LEVIN_API Renaming : public FieldVisitor {
   public:
    Renaming(OptionSection& section, FieldVisitor& to) : section_(section), to_(to) {}

   protected:
    void visit(Field field) override;

   private:
    OptionSection& section_;
    FieldVisitor& to_;
  };

  std::string name_;
  std::set<std::string> given_;
};

/// Visits an option that has no value unless it is given: an unset optional is neither printed nor recorded.
template <class T>
void optional_field(FieldVisitor& to, std::string_view name, std::optional<T>& value,
                    std::string_view help) {
  to.take({.name = std::string(name),
           .help = std::string(help),
           .is_switch = std::is_same_v<T, bool>,
           .is_number = std::is_arithmetic_v<T>,
           .is_list = requires(T list) { list.push_back(list.front()); } &&
                      !std::is_same_v<T, std::string>,
           .get = [&value] { return value ? to_text(*value) : std::string(); },
           .set = [&value](std::string_view text) { from_text(text, value); },
           .is_given = [&value] { return value.has_value(); }});
}

}  // namespace levin
