#pragma once
// ShuffleBuffer: a stream in a random order, as far as a buffer of its samples allows.
// Stands between a shard's stream and the lane that reads it; Hugging Face's
// IterableDataset.shuffle(buffer_size=...).

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "levin/data/iterable_dataset.h"

namespace levin::detail {

/// Gives a sample drawn from a buffer and puts the next of the stream in its place. The order is a
/// pure function of stream, capacity and seed, so that standing at a place again means replaying.
class ShuffleBuffer final : public SampleStream {
 public:
  ShuffleBuffer(std::unique_ptr<SampleStream> stream, int64_t capacity, uint64_t seed);

  bool next(data::Sample& sample) override;

 private:
  std::unique_ptr<SampleStream> stream_;
  size_t capacity_;
  std::mt19937_64 random_;
  std::vector<data::Sample> buffer_;
  bool ended_ = false;
};

}  // namespace levin::detail
