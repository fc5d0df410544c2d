#pragma once
// PreTokenizer: a step that splits text into the pieces (words) that a model sees, one at a time.
// Not for users.
//
//   const PreTokenizer pre_tokenizer = read_pre_tokenizer(file.root().at("pre_tokenizer"));
//   if (pre_tokenizer) pre_tokenizer.apply(text, pieces);

#include <functional>
#include <vector>

#include "levin/text/reading/component.h"
#include "levin/text/working/working_text.h"

namespace levin::text {

struct PreTokenizer {
  using Apply = std::function<void(WorkingText& text, std::vector<Piece>& pieces)>;

  /// Splits each piece that is no token yet. One that rewrites the text moves all pieces.
  Apply apply;
  /// True if the result depends on where parts of the text came from.
  bool needs_origin = false;
  /// Set if the last step writes bytes as letters: the same without that step. Else empty.
  Apply apply_without_byte_letters = {};

  explicit operator bool() const { return static_cast<bool>(apply); }
};

/// Empty for null. Throws Error "text.component" for a kind that there is not.
PreTokenizer read_pre_tokenizer(const Component& component);
PreTokenizer read_byte_level(const Component& component);
PreTokenizer read_metaspace(const Component& component);

}  // namespace levin::text
