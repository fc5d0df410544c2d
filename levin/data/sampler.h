#pragma once
// Samplers: the order in which a DataLoader reads a dataset. The order depends only on the seed and
// the epoch, so a resumed run only skips a number of samples.
//
//   DataLoader loader(dataset, {.batch_size = 64, .sampler = random_sampler(dataset->size(), 7)});

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "levin/base/export.h"

namespace levin {

/// An order of sample indices for each epoch, like torch.utils.data.Sampler.
class LEVIN_API Sampler {
 public:
  virtual ~Sampler();

  /// Number of samples in one epoch.
  virtual int64_t size() const = 0;
  /// Moves to sample number `consumed` of this epoch. A loader may call it at any time. Random
  /// numbers that LibTorch draws here depend only on the loader's seed and the epoch, so they are
  /// the same in each call.
  virtual void start(int64_t epoch, int64_t consumed) = 0;
  /// Writes the next indices and returns their number, which is smaller than indices.size() only at
  /// the end of the epoch.
  virtual int64_t next(std::span<int64_t> indices) = 0;
};

/// Returns a sampler of the order 0, 1, ..., size - 1. Throws Error "data.sampler.size" if size is
/// below 0.
LEVIN_API std::shared_ptr<Sampler> sequential_sampler(int64_t size);

/// Returns a sampler that draws a new permutation for each epoch: torch::randperm with a generator
/// of its own, seeded by seed and epoch. The global generator is not used. Throws Error
/// "data.sampler.size" if size is below 0.
LEVIN_API std::shared_ptr<Sampler> random_sampler(int64_t size, uint64_t seed);

/// Ways to split samples over ranks if their count is not a multiple of the number of ranks.
enum class Uneven {
  kPad,   ///< repeat samples from the epoch's start, so that every rank gets the same count
  kDrop,  ///< leave out the last few, so that every rank gets the same count
  kKeep,  ///< counts of ranks differ by at most one; no sample is repeated (evaluation)
};

/// Returns a sampler of one rank's part: every world_size-th sample of `base`, beginning with
/// number `rank`, like torch.utils.data.DistributedSampler. Throws Error "data.sampler.rank" unless
/// 0 <= rank < world_size, and "data.sampler.size" if one of several ranks would get no sample
/// (kKeep allows that). next() throws Error "data.sampler.short" if `base` ends before its size().
LEVIN_API std::shared_ptr<Sampler> distributed_sampler(std::shared_ptr<Sampler> base, int64_t rank,
                                                       int64_t world_size, Uneven uneven);

// length_grouped_sampler: samples of similar length are next to each other, so that batches need
// little padding, like LengthGroupedSampler of transformers.
//
//   DataLoader loader(dataset,
//                     {.batch_size = 16, .sampler = length_grouped_sampler(lengths, 16, seed)});

/// Returns a sampler that groups samples by length, given the length of each sample. Each epoch has
/// a new permutation (as with random_sampler). It is cut into parts of 50 batches, or of fewer
/// batches if there would be less than four parts, and each part is sorted by descending length.
/// The longest sample of all comes first. Ranks read every world_size-th sample, so their batches
/// have similar lengths at the same time. A loader uses its own seed instead of `seed`. Throws
/// Error "data.sampler.size" if batch_size is below 1.
LEVIN_API std::shared_ptr<Sampler> length_grouped_sampler(std::vector<int64_t> lengths,
                                                          int64_t batch_size, uint64_t seed);

/// Options of weighted_random_sampler().
struct WeightedSamplerOptions {
  int64_t num_samples = 0;  ///< samples per epoch; 0: as many as there are weights
  bool replacement = true;  ///< an index may be drawn several times in an epoch
  uint64_t seed = 0;        ///< seed outside a loader; in a loader, the loader's seed counts
};

/// Returns a sampler that draws index i with a probability proportional to weights[i], as
/// torch.utils.data.WeightedRandomSampler (torch::multinomial in float64), new in each epoch. Ranks
/// split the draws, and a resumed run continues them, as for every sampler. Samples that are drawn
/// twice in an epoch have the same random transforms. Throws Error "data.sampler.weights" for
/// weights that are negative, not finite or all 0, for more than 2^24 weights, and, without
/// replacement, for more samples than weights above 0; and "data.sampler.size" for a num_samples
/// below 0.
LEVIN_API std::shared_ptr<Sampler> weighted_random_sampler(std::vector<double> weights,
                                                           WeightedSamplerOptions options = {});

}  // namespace levin
