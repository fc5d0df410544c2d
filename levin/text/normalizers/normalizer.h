#pragma once
// Normalizer: a step that makes the text uniform before it is split. Not for users.
//
//   const Normalizer normalizer = read_normalizer(file.root().at("normalizer"));
//   if (normalizer) normalizer.apply(text);

#include <functional>

#include "levin/text/reading/component.h"
#include "levin/text/working/working_text.h"

namespace levin::text {

struct Normalizer {
  std::function<void(WorkingText&)> apply;
  /// True if the result depends on where parts of the text came from.
  bool needs_origin = false;

  explicit operator bool() const { return static_cast<bool>(apply); }
};

/// Empty for null. Throws Error "text.component" for a kind that there is not.
Normalizer read_normalizer(const Component& component);
Normalizer read_bert_normalizer(const Component& component);
Normalizer read_precompiled(const Component& component);

}  // namespace levin::text
