#pragma once
// without_optional: the type of an operator's parameter that may be None.

#include <ATen/core/jit_type.h>

namespace levin::graph {

/// Returns the element type of an optional type, and any other type unchanged.
inline c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional == nullptr ? type : optional->getElementType();
}

}  // namespace levin::graph
