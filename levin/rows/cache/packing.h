#pragma once
// Packing: documents put into rows of one length so that little is left empty. Not for users.

#include <cstdint>
#include <span>
#include <vector>

#include "levin/base/export.h"

namespace levin::text::row {

/// The documents of each row.
struct PackedRows {
  std::vector<int64_t> offsets;    ///< [rows + 1]: of each row's first in documents
  std::vector<int64_t> documents;  ///< in the order in which they stand
};

/// Best fit decreasing (Ding et al. 2024), document by document as TRL does it over a whole file: the longest
/// first, each into the row with the least room that holds it, of these the one that came first. No
/// length is 0 or above `length`. O(documents * log(length)).
LEVIN_API PackedRows pack(std::span<const int64_t> lengths, int64_t length);

}  // namespace levin::text::row
