#pragma once
// Encoding: a text as tokens, with all that is known of each.
// What Tokenizer::encode gives; what becomes a batch for a model.
//
//   const text::Encoding encoding = tokenizer.encode("Hello world");
//   for (int32_t id : encoding.ids) ...

#include <cstdint>
#include <vector>

namespace levin::text {

/// From begin on, before end.
struct Offset {
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const Offset&) const = default;
};

/// Lists of one length, an item a token. As Python's tokenizers has it, with -1 for None.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;             ///< 0 for the first text, 1 for the second of a pair
  std::vector<int32_t> attention_mask;       ///< 0 for padding
  std::vector<int32_t> special_tokens_mask;  ///< 1 for what stands for no text
  /// Where in its text the token stands. This and what follows are empty with OffsetUnit::kNone.
  std::vector<Offset> offsets;
  std::vector<int32_t> word_ids;  ///< number of the piece before the model, or of the word given
  std::vector<int32_t> sequence_ids;  ///< the text that it belongs to
  /// What truncation cut off, each as long as may be and beginning with the stride.
  std::vector<Encoding> overflowing;

  bool operator==(const Encoding&) const = default;
  /// Leaves empty lists that keep their memory.
  void clear() {
    for (auto* list :
         {&ids, &type_ids, &attention_mask, &special_tokens_mask, &word_ids, &sequence_ids}) {
      list->clear();
    }
    offsets.clear();
    overflowing.clear();
  }
};

}  // namespace levin::text
