#pragma once
// Dataset: random access to samples, a whole batch at a time.
// Read by the DataLoader's workers, several of them at once.

#include <cstdint>
#include <memory>
#include <span>

#include "levin/base/export.h"
#include "levin/data/batch.h"

namespace levin {

/// What a random transform may depend on, so that the order of workers cannot change the result.
struct DrawContext {
  uint64_t seed = 0;  ///< of the loader
  int64_t epoch = 0;
};

/// get and draw are called from several threads at once and must not change the data set.
class LEVIN_API Dataset {
 public:
  virtual ~Dataset();

  /// Number of samples.
  virtual int64_t size() const = 0;

  /// The samples of these indices, each in [0, size()), in this order: a gather. What LibTorch
  /// draws in here on the CPU for a loader belongs to its seed, the epoch and these samples: the
  /// same on any thread and whatever training draws. For other generators see data::sample_seed().
  virtual Batch get(std::span<const int64_t> indices) const = 0;

  /// The same for data that is drawn or transformed at random, and into memory that is used again:
  /// reuse holds what fields of an earlier batch nobody reads any more, or pinned memory, or
  /// nothing; its shapes may differ from those wanted. The default calls get.
  virtual Batch draw(std::span<const int64_t> indices, const DrawContext& context,
                     Batch reuse) const;

  /// true: reading waits for nothing but the processor and memory, so that a loader starts no more
  /// workers than the machine has cores to spare.
  virtual bool in_memory() const { return false; }
};

using DatasetPtr = std::shared_ptr<const Dataset>;

}  // namespace levin
