#pragma once
// Normalizer: a step that makes the text uniform before it is split. One subclass a kind of
// tokenizer.json. Not for users.
//
//   const auto normalizer = read_normalizer(file.root().at("normalizer"));
//   normalizer->apply(text);

#include <memory>

#include "levin/text/reading/component.h"
#include "levin/text/working/working_text.h"

namespace levin::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(WorkingText& text) const = 0;
  /// Whether what it does with the text depends on where parts of it came from.
  virtual bool needs_origin() const { return false; }
};

using NormalizerPtr = std::unique_ptr<const Normalizer>;

/// Null for null. Throws Error "text.component" for a kind that there is not.
NormalizerPtr read_normalizer(const Component& component);

}  // namespace levin::text
