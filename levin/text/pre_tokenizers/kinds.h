#pragma once
// The kinds of pre-tokenizers, for read.cpp. Not for users.

#include <string>

#include "levin/text/pre_tokenizers/pre_tokenizer.h"

namespace levin::text {

PreTokenizerPtr read_byte_level(const Component& component);
PreTokenizerPtr read_metaspace(const Component& component);
PreTokenizerPtr read_split(const Component& component);
PreTokenizerPtr read_pre_tokenizers(const Component& component);  ///< Sequence
/// BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation, Digits, CharDelimiterSplit,
/// UnicodeScripts, FixedLength; null for others.
PreTokenizerPtr read_simple_pre_tokenizer(const std::string& kind, const Component& component);

}  // namespace levin::text
