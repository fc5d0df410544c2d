#pragma once
// Seal: the proof that a word in the store was written by who knows the job's token. The store
// itself takes words from everybody who reaches its port, and lists its keys to them.
//
//   store.set(key, launch::sealed(token, key, text));
//   const auto text = launch::opened(token, key, word);      // none: a stranger's

#include <optional>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::launch {

/// The seal of text under that key of the store, then the text; the text alone without a token.
LEVIN_API std::string sealed(std::string_view token, std::string_view key, std::string_view text);

/// The text of a word that sealed() made with the same token and key.
LEVIN_API std::optional<std::string> opened(std::string_view token, std::string_view key,
                                            std::string_view word);

}  // namespace levin::launch
