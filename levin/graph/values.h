#pragma once
// The values among arguments.

#include <ATen/core/ivalue.h>

#include "levin/graph/graph.h"

namespace levin::graph {

template <class Visit>
void for_each_value(const Argument& argument, const Visit& visit) {
  if (Value* const* value = std::get_if<Value*>(&argument)) {
    visit(**value);
  } else if (const auto* values = std::get_if<Values>(&argument)) {
    for (Value* value : *values) {
      if (value != nullptr) visit(*value);
    }
  }
}

/// nullptr where it is no constant.
inline const c10::IValue* constant_of(const Argument& argument) {
  const Constant* constant = std::get_if<Constant>(&argument);
  return constant == nullptr ? nullptr : constant->get();
}

/// Returns how many values an argument is when an operator writes it.
inline size_t num_values(const Argument& argument) {
  if (const auto* values = std::get_if<Values>(&argument)) return values->size();
  return std::holds_alternative<Value*>(argument) ? 1 : 0;
}

}  // namespace levin::graph
