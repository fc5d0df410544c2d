#pragma once
// Random numbers of data: what LibTorch draws on the CPU while data is read belongs to the loader's
// seed, the epoch and the sample, whichever thread reads it, and the training's generator is left
// alone. The loader's readers stand in a DrawScope. Not for users.
//
//   auto noisy = data::samples(size, [x](int64_t i) {
//     std::mt19937_64 own(data::sample_seed());                          // as reproducible as
//     return Sample{{"x", x[i] + own() % 3 * torch::randn({8})}};        // what torch draws
//   });

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <span>

#include "levin/base/export.h"
#include "levin/data/dataset.h"

namespace levin {

namespace detail {

enum class DrawsOf : uint64_t { kBatch = 1, kSample, kShard, kOrder };

/// The subject of random draws. Seeded when something is drawn.
struct Draws {
  uint64_t epoch_seed = 0;  ///< from seed and epoch
  DrawsOf what = DrawsOf::kBatch;
  std::span<const int64_t> items = {};  ///< samples, or shards
  int64_t place = 0;                    ///< in what is read one after another
  bool is_seeded = false;
  Draws* outer = nullptr;

  uint64_t seed() const;
};

/// The calling thread reads these items. A recorder of the surrounding code does not see the
/// operators of the data.
class LEVIN_API DrawScope {
 public:
  /// items must outlive it.
  DrawScope(const DrawContext& context, DrawsOf what, std::span<const int64_t> items,
            int64_t place = 0);
  ~DrawScope();
  DrawScope(const DrawScope&) = delete;
  DrawScope& operator=(const DrawScope&) = delete;

 private:
  Draws draws_;
  c10::impl::IncludeDispatchKeyGuard supplied_;
  c10::impl::ExcludeDispatchKeyGuard unseen_;
};

/// One item of what the DrawScope around is of: a sample, by its index or by shard and place.
/// Elsewhere it does nothing.
class LEVIN_API ItemScope {
 public:
  explicit ItemScope(DrawsOf what, int64_t item = 0, int64_t place = 0);
  ~ItemScope();
  ItemScope(const ItemScope&) = delete;
  ItemScope& operator=(const ItemScope&) = delete;

 private:
  int64_t item_;
  Draws draws_;
};

/// Returns whether sample_seed() is that of a loader's reading or ordering.
bool in_draw_scope();

/// The sample of a stream behind the one that was read is read from here on.
void advance_draws();

}  // namespace detail
}  // namespace levin
