#pragma once
// to_batch: texts as the batch that a model takes.
//
//   const auto tokenizer = levin::text::Tokenizer::from_pretrained("minilm");
//   auto output = net->forward(levin::models::to_batch(tokenizer, {"a text", "another one"}));

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "levin/base/export.h"
#include "levin/data/batch.h"
#include "levin/text/tokenizer.h"

namespace levin::models {

/// input_ids, attention_mask and, where a text has two parts, token_type_ids: int64 [texts, longest].
/// Padded to the longest, on the side and with the token that the tokenizer's files name; cut where the
/// tokenizer is told to (set_truncation).
LEVIN_API Batch to_batch(const text::Tokenizer& tokenizer, std::span<const std::string> texts);
LEVIN_API Batch to_batch(const text::Tokenizer& tokenizer,
                         std::initializer_list<std::string> texts);
LEVIN_API Batch to_batch(const text::Tokenizer& tokenizer,
                         std::span<const text::Encoding> encodings);

/// input_ids and attention_mask, padded on the left: what Pretrained::generate writes on from.
LEVIN_API Batch to_prompts(const text::Tokenizer& tokenizer, std::span<const std::string> texts);
LEVIN_API Batch to_prompts(const text::Tokenizer& tokenizer,
                           std::initializer_list<std::string> texts);
LEVIN_API Batch to_prompts(const text::Tokenizer& tokenizer,
                           std::span<const text::Encoding> encodings);

}  // namespace levin::models
