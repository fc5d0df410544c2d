#pragma once
// Decoder: a step on the way from tokens back to text. Not for users.

#include <functional>
#include <string>
#include <vector>

#include "levin/text/reading/component.h"

namespace levin::text {

/// Changes the tokens' texts, which are put together in the end.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;

/// Empty for null. Throws Error "text.component" for a kind that there is not.
Decoder read_decoder(const Component& component);

/// Every `from` of the text as `to`.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace levin::text
