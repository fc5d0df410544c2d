#include "levin/base/random.h"
#include "levin/rows/batches/rows_dataset.h"
#include "levin/rows/recipes/recipe.h"

namespace levin::text::row {
namespace {

enum Stream : uint64_t { kDrawn = 1, kWhat, kWhich };

/// In [0, 1).
double fraction(uint64_t bits) { return static_cast<double>(bits >> 11U) * 0x1p-53; }

}  // namespace

void mask_tokens(std::span<const int32_t> tokens, uint64_t seed, const Layout& layout, int64_t* ids,
                 int64_t* labels) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || fraction(derive_seed(seed, kDrawn, i)) >= layout.drawn) continue;
    labels[i] = tokens[i];
    const double what = fraction(derive_seed(seed, kWhat, i));
    if (what < layout.masked) {
      ids[i] = layout.mask_id;
    } else if (what < layout.masked + layout.replaced) {
      ids[i] = static_cast<int64_t>(fraction(derive_seed(seed, kWhich, i)) *
                                    static_cast<double>(layout.vocab_size));
    }
  }
}

}  // namespace levin::text::row
