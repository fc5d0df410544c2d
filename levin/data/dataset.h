#pragma once
// Dataset: random access to samples, a whole batch at a time.
// Read by the DataLoader's workers, several of them at once.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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

// IterableDataset: data that can only be read from its beginning on: files, queues, a network.
// Read by the DataLoader as a number of shards, each a stream of samples; torch's IterableDataset,
// split over ranks and workers as Hugging Face's split_dataset_by_node does it.
//
//   struct Lines : IterableDataset {
//     int64_t num_shards() const override { return std::ssize(files); }
//     std::unique_ptr<SampleStream> open(int64_t shard, const DrawContext&) const override {
//       return std::make_unique<LineReader>(files[shard]);
//     }
//     std::vector<std::string> files;
//   };
//   DataLoader loader(std::make_shared<Lines>(), {.batch_size = 32, .num_workers = 4});

/// One reading of a shard. Used by one thread at a time, not always by the same.
class LEVIN_API SampleStream {
 public:
  virtual ~SampleStream();

  /// The next sample (without the batch dim), or false at the end of the shard, from where on it is
  /// not asked again. What LibTorch draws in here on the CPU belongs to seed, epoch, shard and
  /// place.
  virtual bool next(data::Sample& sample) = 0;
  /// Passes over so many samples and returns how many there were: fewer only at the end. What a run
  /// that is resumed calls; the default reads them and forgets them.
  virtual int64_t skip(int64_t count);
};

/// Its functions are called from several threads at once and must not change the data set. A shard
/// that is opened twice for one epoch gives the same samples in the same order.
class LEVIN_API IterableDataset {
 public:
  virtual ~IterableDataset();

  /// Parts that can be read at the same time, at least 1. Where the number of ranks divides it each
  /// rank reads shards of its own (rank, rank + world_size, ...). Else every rank reads all of them
  /// and keeps each world_size-th sample: sample i of shard s is rank (s + i) % world_size's.
  virtual int64_t num_shards() const { return 1; }
  /// The shard from its beginning; context is for random transforms with generators of one's own.
  virtual std::unique_ptr<SampleStream> open(int64_t shard, const DrawContext& context) const = 0;

  /// Samples of a shard in every epoch. Known for all of them a loader has a size, and a shard that
  /// ends elsewhere is an error; unknown (the default) the loader has none.
  virtual std::optional<int64_t> shard_size(int64_t shard) const { return std::nullopt; }

  /// true: what the streams give are batches already (with the batch dim), handed out as they come.
  /// Where samples are counted above and below, they are meant. The loader's batch_size stays 1.
  virtual bool in_batches() const { return false; }

  /// Makes a batch of samples; the default stacks each field (torch::stack), into the memory of
  /// reuse where it fits (see Dataset::draw). numbers: the samples' places in their shards.
  virtual Batch collate(std::vector<data::Sample> samples, std::span<const int64_t> numbers,
                        Batch reuse) const;
};

using IterableDatasetPtr = std::shared_ptr<const IterableDataset>;

}  // namespace levin
