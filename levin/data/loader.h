#pragma once
// DataLoader: batches of a data set in a sampler's order, fetched ahead by worker threads.
// Stands between the data set and the module; its state counts the samples that were handed out.
//
//   DataLoader loader(dataset, {.batch_size = 64, .shuffle = true, .num_workers = 2});
//   for (const auto& batch : loader) { ... }           // one epoch, then the next

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/data/batch.h"
#include "levin/data/dataset.h"
#include "levin/data/sampler.h"

namespace levin {

struct DataLoaderOptions {
  // Behaviour
  int64_t batch_size = 1;            ///< samples of a batch on this rank
  bool shuffle = false;              ///< a new permutation each epoch, from seed and epoch
  std::shared_ptr<Sampler> sampler;  ///< in place of shuffle
  // Performance
  int64_t num_workers = 0;  ///< threads that fetch ahead; 0 fetches in the calling thread. No more
                            ///< are started for data in memory than there are cores to spare
  std::optional<bool> pin_memory;  ///< page-locked batches; unset: when training on CUDA
  // Behaviour
  bool drop_last = false;       ///< leave out a last batch that is shorter
  int64_t prefetch_factor = 2;  ///< batches fetched ahead by each worker
  std::optional<int64_t> seed;  ///< of shuffling and random transforms; unset: current_seed()
};

/// The part of a data set that one rank reads.
struct DataSlice {
  int64_t rank = 0;
  int64_t world_size = 1;
};

/// A handle: copies share the loader. Not thread-safe; one iteration at a time (a second begin()
/// ends the first). The order of batches does not depend on num_workers; a caller who would have to
/// wait for a worker fetches a batch itself. A batch may hold views of the data set: clone what
/// you write to. An exception in the data set comes out of next() and of the loop as Error
/// "data.loader.sample" with the sample's index; the loader then stands where it stood before.
/// Throws Error "data.loader.dataset", "data.loader.batch_size", "data.loader.num_workers",
/// "data.loader.prefetch_factor", "data.loader.sampler" (a sampler and shuffle, or a sampler that
/// is distributed already and a slice), "data.batch.pin_memory" (without CUDA).
class LEVIN_API DataLoader {
  class Impl;

 public:
  DataLoader(DatasetPtr dataset, DataLoaderOptions options = {});

  /// Batches of one epoch on this rank.
  int64_t size() const;
  const DatasetPtr& dataset() const;
  const DataLoaderOptions& options() const;

  /// Gives this rank its part (distributed_sampler over the loader's own order). Called by the
  /// strategy before the first batch; with even (training) ranks get equal counts, by Uneven::kPad
  /// or with drop_last by kDrop, else (evaluation) no sample is repeated. {0, 1} changes nothing.
  /// Throws Error "data.sampler.rank" and "data.sampler.size".
  void set_slice(DataSlice slice, bool even);
  /// Without CUDA true throws Error "data.batch.pin_memory".
  void set_pin_memory(bool pin_memory);

  /// The next batch of the running epoch, or false at its end, after which the loader stands at the
  /// start of the next epoch. The batch's memory may be used again once the caller has let go of
  /// every tensor of it.
  bool next(Batch& batch);

  /// Epoch whose samples are read next, and how many batches of it were handed out.
  int64_t epoch() const;
  int64_t batches_done() const;
  /// Stops what runs ahead and stands at the start of that epoch. Throws Error "data.loader.epoch"
  /// when it is below 0.
  void set_epoch(int64_t epoch);

  /// {"epoch", "samples", "seed", "size"}: samples counts those handed out on all ranks in this
  /// epoch, not those fetched ahead; size is the count of one epoch on all ranks. load_state_dict
  /// takes up there, also with another number of ranks or workers; a state of another size throws
  /// Error "data.loader.state".
  State state_dict() const;
  void load_state_dict(const State& state);

  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    const Batch& operator*() const { return batch_; }
    const Batch* operator->() const { return &batch_; }
    Iterator& operator++() {
      advance();
      return *this;
    }
    void operator++(int) { advance(); }
    bool operator==(std::default_sentinel_t) const { return impl_ == nullptr; }

   private:
    friend class DataLoader;
    LEVIN_API explicit Iterator(std::shared_ptr<Impl> impl);
    LEVIN_API void advance();
    std::shared_ptr<Impl> impl_;
    uint64_t iteration_;
    Batch batch_;
  };

  /// Goes on where load_state_dict or set_epoch stands; where batches were handed out since, a loop
  /// that was left early, it starts the next epoch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin
