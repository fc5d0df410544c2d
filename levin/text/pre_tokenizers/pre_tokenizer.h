#pragma once
// PreTokenizer: a step that splits text into the pieces (words) that a model sees, one at a time.
// Not for users.
//
//   const auto pre_tokenizer = read_pre_tokenizer(file.root().at("pre_tokenizer"));
//   pre_tokenizer->apply(text, pieces);

#include <memory>
#include <vector>

#include "levin/text/reading/component.h"
#include "levin/text/working/working_text.h"

namespace levin::text {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Splits each piece that is no token yet. One that rewrites the text moves all pieces.
  virtual void apply(WorkingText& text, std::vector<Piece>& pieces) const = 0;
  /// Whether what it does depends on where parts of the text came from.
  virtual bool needs_origin() const { return false; }
  /// Whether the last it does is to write bytes as letters; without_byte_letters leaves that out.
  virtual bool ends_with_byte_letters() const { return false; }
  virtual void apply_without_byte_letters(WorkingText& text, std::vector<Piece>& pieces) const {
    apply(text, pieces);
  }
};

using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

/// Null for null. Throws Error "text.component" for a kind that there is not.
PreTokenizerPtr read_pre_tokenizer(const Component& component);

}  // namespace levin::text
