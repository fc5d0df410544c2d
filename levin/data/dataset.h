#pragma once
// Dataset: a map-style dataset, which returns a whole batch of samples by index.
// The workers of a DataLoader read it, several at the same time.
//
//   struct Squares : Dataset {
//     int64_t size() const override { return 100; }
//     Batch get(std::span<const int64_t> indices) const override {
//       const at::Tensor x = torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()));
//       return {{"x", x}, {"y", x * x}};
//     }
//   };

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/batch.h"

namespace levin {

/// Inputs of a random transform besides the sample itself. A transform that depends on nothing else
/// gives the same result for any number and order of workers.
struct DrawContext {
  uint64_t seed = 0;  ///< seed of the loader
  int64_t epoch = 0;  ///< epoch that is being read
};

/// A map-style dataset, like torch.utils.data.Dataset with __getitems__. get() and draw() are
/// called from several threads at the same time and must not change the dataset.
class LEVIN_API Dataset {
 public:
  virtual ~Dataset();

  /// Number of samples.
  virtual int64_t size() const = 0;

  /// Returns the samples of these indices as one batch, in the same order. Each index lies in [0,
  /// size()). Random numbers that LibTorch draws here on the CPU for a loader depend only on the
  /// loader's seed, the epoch and these samples: they are the same on every thread, and do not
  /// depend on what training draws. For other generators see data::sample_seed().
  virtual Batch get(std::span<const int64_t> indices) const = 0;

  /// Same as get(), for datasets that draw or transform samples at random, or that reuse memory.
  /// `reuse` holds fields of an earlier batch that nobody reads any more, or pinned memory, or
  /// nothing; its shapes may differ from the shapes needed. The default calls get().
  virtual Batch draw(std::span<const int64_t> indices, const DrawContext& context,
                     Batch reuse) const;

  /// Returns whether reading uses only the processor and memory, so that it never waits for a disk
  /// or a network. A loader then starts no more workers than the machine has spare cores.
  virtual bool in_memory() const { return false; }
};

/// Shared handle of a dataset.
using DatasetPtr = std::shared_ptr<const Dataset>;

// IterableDataset: a streaming dataset, which can only be read from its beginning: files, queues, a
// network. A DataLoader reads it as a number of shards, each of them a stream of samples, as with
// torch.utils.data.IterableDataset. Shards are split over ranks and workers in the same way as in
// split_dataset_by_node of Hugging Face's datasets.
//
//   struct Lines : IterableDataset {
//     int64_t num_shards() const override { return std::ssize(files); }
//     std::unique_ptr<SampleStream> open(int64_t shard, const DrawContext&) const override {
//       return std::make_unique<LineReader>(files[shard]);
//     }
//     std::vector<std::string> files;
//   };
//   DataLoader loader(std::make_shared<Lines>(), {.batch_size = 32, .num_workers = 4});

/// One pass over a shard. One thread at a time uses it, but not always the same thread.
class LEVIN_API SampleStream {
 public:
  virtual ~SampleStream();

  /// Reads the next sample, without the batch dimension, and returns true. Returns false at the end
  /// of the shard; next() is not called again after that. Random numbers that LibTorch draws here
  /// on the CPU depend on the seed, the epoch, the shard and the position in the shard.
  virtual bool next(data::Sample& sample) = 0;
  /// Skips `count` samples and returns the number skipped, which is smaller only at the end of the
  /// shard. A resumed run calls it. The default reads the samples and discards them.
  virtual int64_t skip(int64_t count);
};

/// A streaming dataset made of shards, like torch.utils.data.IterableDataset. Its functions are
/// called from several threads at the same time and must not change the dataset. A shard that is
/// opened twice in one epoch must give the same samples in the same order.
class LEVIN_API IterableDataset {
 public:
  virtual ~IterableDataset();

  /// Number of parts that can be read at the same time, at least 1. If the number of ranks divides
  /// it, each rank reads its own shards (rank, rank + world_size, ...). Otherwise every rank reads
  /// all shards and keeps one in world_size samples: sample i of shard s belongs to rank
  /// (s + i) % world_size.
  virtual int64_t num_shards() const { return 1; }
  /// Opens a shard at its beginning. `context` is for random transforms that use generators of
  /// their own.
  virtual std::unique_ptr<SampleStream> open(int64_t shard, const DrawContext& context) const = 0;

  /// Number of samples that the shard has in every epoch; nullopt (the default) if it is unknown. A
  /// loader has a size only if shard_size() is known for every shard. A shard that has another
  /// number of samples is then an error.
  virtual std::optional<int64_t> shard_size(int64_t shard) const { return std::nullopt; }

  /// Returns whether the streams give whole batches (with the batch dimension), which the loader
  /// hands out as they come. shard_size(), skip() and the positions in the shard then count
  /// batches, and the loader's batch_size must be 1.
  virtual bool in_batches() const { return false; }

  /// Collates samples into a batch. The default stacks each field (torch::stack), into the memory
  /// of `reuse` if it fits (see Dataset::draw). `numbers` are the positions of the samples in their
  /// shards.
  virtual Batch collate(std::vector<data::Sample> samples, std::span<const int64_t> numbers,
                        Batch reuse) const;
};

/// Shared handle of a streaming dataset.
using IterableDatasetPtr = std::shared_ptr<const IterableDataset>;

}  // namespace levin
