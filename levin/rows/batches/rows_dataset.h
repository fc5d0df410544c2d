#pragma once
// RowsDataset: batches out of a token file, padded or packed. Not for users.

#include <memory>

#include "levin/base/export.h"
#include "levin/data/dataset.h"
#include "levin/rows/batches/layout.h"
#include "levin/rows/cache/token_file.h"

namespace levin::text::row {

class LEVIN_API RowsDataset final : public Dataset {
 public:
  RowsDataset(std::shared_ptr<const TokenFile> file, const Layout& layout);

  int64_t size() const override { return file_->num_samples(); }
  Batch get(std::span<const int64_t> indices) const override { return draw(indices, {}, {}); }
  Batch draw(std::span<const int64_t> indices, const DrawContext& context,
             Batch reuse) const override;
  bool in_memory() const override { return true; }

 private:
  int64_t width_of(std::span<const int64_t> indices) const;

  std::shared_ptr<const TokenFile> file_;
  Layout layout_;
};

/// Replaces tokens by the mask or by others, as BERT's authors do. Each token that counts is drawn
/// with probability layout.drawn. labels gets the ids of the drawn ones. The draw depends on seed
/// and place alone.
LEVIN_API void mask_tokens(std::span<const int32_t> tokens, uint64_t seed, const Layout& layout,
                           int64_t* ids, int64_t* labels);

}  // namespace levin::text::row
