#pragma once
// option_group: the headings under which --help shows options.
//
//   void fields(levin::FieldVisitor& field) {
//     levin::option_group(field, "data");
//     field("batch_size", batch_size, "samples of a batch");
//   }

#include <string>
#include <string_view>

#include "levin/base/options.h"

namespace levin {

/// Options that are visited after this stand under that heading, until the next one; "" ends it. A field without a
/// name, which visitors of values pass over.
inline void option_group(FieldVisitor& field, std::string_view heading) {
  field.take({.name = "", .help = std::string(heading)});
}

}  // namespace levin
