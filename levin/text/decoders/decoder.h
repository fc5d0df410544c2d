#pragma once
// Decoder: a step on the way from tokens back to text. Not for users.

#include <memory>
#include <string>
#include <vector>

#include "levin/text/reading/component.h"

namespace levin::text {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes the tokens' texts, which are put together in the end.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

using DecoderPtr = std::unique_ptr<const Decoder>;

/// Null for null. Throws Error "text.component" for a kind that there is not.
DecoderPtr read_decoder(const Component& component);

/// Every `from` of the text as `to`.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace levin::text
