#pragma once
// Draft: an encoding in the making, which is cut and joined. Not for users.

#include <cstdint>
#include <span>
#include <vector>

#include "levin/text/tokenizer.h"

namespace levin::text {

struct Draft {
  Encoding own;  // without overflowing
  /// White space at both ends of a token, which may be trimmed off its offsets; empty where nobody asks.
  struct Blanks {
    uint16_t leading;
    uint16_t trailing;
  };
  std::vector<Blanks> blanks;
  std::vector<Draft> overflowing;
  bool tracked = true;      // offsets, words and sequences are there
  bool has_blanks = false;  // blanks are there

  size_t size() const { return own.ids.size(); }
  /// An empty one with the same lists.
  Draft like() const;
  /// Puts special tokens before the token at this place, or behind all.
  void insert_special(size_t at, std::span<const int32_t> ids, int32_t type);
  void set_types(int32_t type) { own.type_ids.assign(own.ids.size(), type); }
  void set_sequences(int32_t sequence) {
    if (tracked) own.sequence_ids.assign(own.ids.size(), sequence);
  }
};

enum class Side { kLeft, kRight };

/// Leaves at most so many tokens; what is cut off goes to overflowing. The stride is below the length.
void truncate(Draft& draft, size_t length, size_t stride, Side side);

/// Puts other behind draft, and each combination of what overflows.
void join(Draft& draft, Draft other);

Encoding finished(Draft draft);

}  // namespace levin::text
