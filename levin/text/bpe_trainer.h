#pragma once
// train_bpe: a vocabulary of byte pairs, learnt from texts, as a tokenizer.json.
// Where a tokenizer comes from that nobody has published; Tokenizer::from_json takes what it gives.
//
//   const std::string json = levin::text::train_bpe(
//       R"({"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}})", texts,
//       {.vocab_size = 8000, .special_tokens = {{.content = "<s>", .special = true}}});

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/text/tokenizer.h"

namespace levin::text {

/// Of Python's BpeTrainer.
struct BpeTrainerOptions {
  int64_t vocab_size = 30'000;
  int64_t min_frequency = 0;                  ///< of a pair that is still merged
  std::vector<AddedToken> special_tokens;     ///< get the first ids
  std::optional<int64_t> limit_alphabet;      ///< characters that are kept, the most frequent ones
  std::vector<std::string> initial_alphabet;  ///< characters that are kept though no text has them
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  std::optional<int64_t> max_token_length;  ///< characters of a token that merges make
};

/// All bytes as byte-level vocabularies write them: an initial alphabet that leaves nothing unknown.
LEVIN_API std::vector<std::string> byte_alphabet();

/// Normalizer, pre-tokenizer and the rest are those of `tokenizer`, a tokenizer.json with or without a
/// model. Vocabulary and merges are what Python's library learns. Throws Error "text.train" where an option has
/// a value that does not exist, and what Tokenizer::from_json throws.
LEVIN_API std::string train_bpe(std::string_view tokenizer, std::span<const std::string> texts,
                                const BpeTrainerOptions& options = {});

}  // namespace levin::text
