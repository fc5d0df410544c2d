#pragma once
// Samples of about one length beside each other, so that batches are padded little: transformers'
// LengthGroupedSampler.
//
//   DataLoader loader(dataset, {.batch_size = 16, .sampler = length_grouped_sampler(lengths, 16, seed)});

#include <cstdint>
#include <memory>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/sampler.h"

namespace levin {

/// A permutation for each epoch (as random_sampler's), whose parts of 50 batches, fewer where that leaves
/// less than four of them, are sorted by descending length; the longest sample comes first of all. Ranks,
/// which read every world_size-th sample, have batches of about one length at the same time. Throws Error
/// "data.sampler.size" where batch_size is below 1.
LEVIN_API std::shared_ptr<Sampler> length_grouped_sampler(std::vector<int64_t> lengths,
                                                          int64_t batch_size, uint64_t seed);

}  // namespace levin
