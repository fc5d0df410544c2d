#pragma once
// Samplers: the order in which a loader reads a data set.
// Each is a pure function of its seed and the epoch, so that resuming means counting.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "levin/base/export.h"

namespace levin {

class LEVIN_API Sampler {
 public:
  virtual ~Sampler();

  /// Samples of one epoch.
  virtual int64_t size() const = 0;
  /// Stands at sample number `consumed` of that epoch. A loader may call it at any time. What
  /// LibTorch draws in here is the same each time, of the loader's seed and the epoch.
  virtual void start(int64_t epoch, int64_t consumed) = 0;
  /// Writes the next indices and returns how many: fewer than asked only at the epoch's end.
  virtual int64_t next(std::span<int64_t> indices) = 0;
};

/// 0, 1, ..., size - 1. Throws Error "data.sampler.size" when size is below 0, as random_sampler.
LEVIN_API std::shared_ptr<Sampler> sequential_sampler(int64_t size);

/// A permutation for each epoch (torch::randperm from a generator of its own, seeded by seed and
/// epoch); the global generator is not touched.
LEVIN_API std::shared_ptr<Sampler> random_sampler(int64_t size, uint64_t seed);

enum class Uneven {
  kPad,   ///< repeat samples from the epoch's start, so that every rank gets the same count
  kDrop,  ///< leave out the last few, so that every rank gets the same count
  kKeep,  ///< ranks differ by one sample at most; none is repeated (evaluation)
};

/// Every world_size-th sample of the base order, beginning with number rank: torch's
/// DistributedSampler. Throws Error "data.sampler.rank" unless 0 <= rank < world_size,
/// "data.sampler.size" when some of several ranks would get nothing (with kKeep some may), and when
/// read
/// "data.sampler.short" if base ends before its size().
LEVIN_API std::shared_ptr<Sampler> distributed_sampler(std::shared_ptr<Sampler> base, int64_t rank,
                                                       int64_t world_size, Uneven uneven);

// Samples of about one length beside each other, so that batches are padded little: transformers'
// LengthGroupedSampler.
//
//   DataLoader loader(dataset,
//                     {.batch_size = 16, .sampler = length_grouped_sampler(lengths, 16, seed)});

/// A permutation for each epoch (as random_sampler's), whose parts of 50 batches, fewer where that leaves
/// less than four of them, are sorted by descending length; the longest sample comes first of all. Ranks,
/// which read every world_size-th sample, have batches of about one length at the same time. In a loader
/// its seed counts, elsewhere this one. Throws Error "data.sampler.size" where batch_size is below 1.
LEVIN_API std::shared_ptr<Sampler> length_grouped_sampler(std::vector<int64_t> lengths,
                                                          int64_t batch_size, uint64_t seed);

}  // namespace levin
