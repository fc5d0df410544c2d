#pragma once
// Layout: what a batch of token rows looks like. Not for users.

#include <cstdint>

namespace levin::text::row {

/// The fields that go with the tokens.
enum class Fields {
  kLanguage,   ///< labels are the ids that count
  kMasked,     ///< labels are the ids that were drawn
  kLabelled,   ///< a label a row
  kTagged,     ///< labels stand beside the tokens
  kSequences,  ///< for several sequences, labels are the ids that count: dpo
  kTexts       ///< several sequences, labels are numbers or none: embed
};

struct Layout {
  Fields fields = Fields::kLanguage;
  int32_t pad_id = 0;
  int32_t pad_type = 0;
  bool pads_left = false;
  int64_t multiple = 1;  ///< widths are multiples of this
  int64_t width = 0;     ///< width of every batch; 0: the width of its longest row

  // For kMasked
  int32_t mask_id = 0;
  int64_t vocab_size = 0;
  double drawn = 0;     ///< part of the tokens
  double masked = 0;    ///< part of those drawn
  double replaced = 0;  ///< part of those drawn
};

}  // namespace levin::text::row
