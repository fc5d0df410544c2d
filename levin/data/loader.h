#pragma once
// DataLoader: batches of a data set in a sampler's order, or of a stream in its own, fetched ahead
// by worker threads.
// Stands between the data set and the module; its state counts the samples that were handed out.
//
//   DataLoader loader(dataset, {.batch_size = 64, .shuffle = true, .num_workers = 2});
//   for (const auto& batch : loader) { ... }           // one epoch, then the next

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/data/batch.h"
#include "levin/data/dataset.h"
#include "levin/data/sampler.h"

// pad_collate: batches of samples that differ in length, in few shapes: each batch is padded to the
// smallest of some lengths that holds its longest sample, so that a step which is compiled (XLA,
// replay) is compiled once for each. What Hugging Face's DataCollatorWithPadding does.
//
//   auto dataset = data::samples(size, read, {.collate = data::pad_collate(
//       {.lengths = {64, 128, 256}, .values = {{"tokens", 0}, {"label", -100}}})});
//   DataLoader loader(dataset, {.batch_size = 32, .pad_last_batch = true,
//                               .padding_values = {{"label", -100}}});
//   ... batch["tokens"]  // [32, 64], [32, 128] or [32, 256]
//   ... batch["mask"]    // the same shape, false where it was padded

namespace levin::data {

struct PadOptions {
  /// Ascending. A batch with a sample longer than the last is an error.
  std::vector<int64_t> lengths;
  /// The fields that have the length, and what they are padded with.
  std::vector<std::pair<std::string, double>> values;
  int64_t dim = 0;  ///< of a sample's field, where its length is; below 0 from the last on
  std::string mask = "mask";  ///< the field that says where something is
};

/// For SampleOptions::collate, or to be called from IterableDataset::collate. The fields of values
/// have one length within a sample; they are [N, ...] with a length of `lengths`. mask is bool [N,
/// length], true where the sample goes. Other fields are stacked as they are. Throws Error
/// "data.pad.options" at once; when called "data.pad.length" for a sample that is longer than all
/// lengths, or whose fields differ in it, "data.pad.field" for one without such a field or dim, and
/// "data.samples.stack".
LEVIN_API std::function<Batch(std::vector<Sample>)> pad_collate(PadOptions options);

}  // namespace levin::data

namespace levin {

struct DataLoaderOptions {
  // Behaviour
  int64_t batch_size = 1;            ///< samples of a batch on this rank
  bool shuffle = false;              ///< a new permutation each epoch, from seed and epoch; of a
                                     ///< stream as far as shuffle_buffer_size allows
  std::shared_ptr<Sampler> sampler;  ///< in place of shuffle, not for streams
  // Performance
  int64_t num_workers = 0;  ///< threads that fetch ahead; 0 fetches in the calling thread. No more
                            ///< are started for data in memory than there are cores to spare
  std::optional<bool> pin_memory;  ///< page-locked batches; unset: when training on CUDA
  // Behaviour
  bool drop_last = false;  ///< leave out a last batch that is shorter
  /// Fill a last batch that is shorter up to batch_size with its own samples again: all batches
  /// have one shape, and a step that is compiled (XLA, replay) is compiled once. Every batch gets a
  /// field "sample_mask", bool [batch_size], false where a sample was added.
  bool pad_last_batch = false;
  /// What these fields hold in added samples, by name: {{"label", -100}} is what cross_entropy and
  /// Accuracy leave out (ignore_index).
  std::vector<std::pair<std::string, double>> padding_values = {};
  int64_t prefetch_factor = 2;  ///< batches fetched ahead by each worker
  std::optional<int64_t> seed;  ///< of shuffling and random transforms; unset: current_seed()
  // Of streams (IterableDataset)
  int64_t shuffle_buffer_size = 1000;  ///< samples of each open shard among which shuffle draws
  int64_t open_shards = 4;             ///< read in turn, a batch of each; also how many workers can
                                       ///< read at the same time
};

/// The part of a data set that one rank reads.
struct DataSlice {
  int64_t rank = 0;
  int64_t world_size = 1;
};

namespace detail {
class LoaderImpl;
}  // namespace detail

/// A handle: copies share the loader. Not thread-safe; one iteration at a time (a second begin()
/// ends the first). The order of batches does not depend on num_workers; a caller who would have to
/// wait for a worker fetches a batch itself. A batch may hold views of the data set: clone what
/// you write to. An exception in the data set comes out of next() and of the loop as Error
/// "data.loader.sample" with the sample's index, or shard and place in it; the loader then stands
/// where it stood before.
///
/// A stream: this rank's shards are dealt out to open_shards lanes, each of which reads its shards
/// one after another (shuffle: in a new order each epoch). Batch after batch comes from the lanes
/// in turn; one that has ended drops out, its last batch may be shorter. For torch's order,
/// open_shards = 1.
///
/// Throws Error "data.loader.dataset", "data.loader.batch_size", "data.loader.num_workers",
/// "data.loader.prefetch_factor", "data.loader.sampler" (a sampler and shuffle, or a sampler that
/// is distributed already and a slice, or a sampler for a stream), "data.batch.pin_memory" (without
/// CUDA), "data.loader.stream" (an option of streams below 1, or no shard),
/// "data.loader.pad_last_batch" (with drop_last, or for a stream of batches).
class LEVIN_API DataLoader {
 public:
  DataLoader(DatasetPtr dataset, DataLoaderOptions options = {});
  DataLoader(std::nullptr_t, DataLoaderOptions options = {});  ///< throws "data.loader.dataset"
  DataLoader(IterableDatasetPtr dataset, DataLoaderOptions options = {});
  explicit DataLoader(std::shared_ptr<detail::LoaderImpl> impl);

  /// Another loader of the same data with the same options, at the same place.
  DataLoader copy() const;

  /// Whether the number of batches is known: false for a stream that does not tell its shard_size.
  bool has_size() const;
  /// Batches of one epoch on this rank; of a stream in training those of the rank with the fewest.
  /// Throws Error "data.loader.size" when it is not known.
  int64_t size() const;
  /// The data set that is read by index, null for a stream.
  const DatasetPtr& dataset() const;
  const DataLoaderOptions& options() const;

  /// Gives this rank its part (distributed_sampler over the loader's own order). Called by the
  /// strategy before the first batch; with even (training) ranks get equal counts, by Uneven::kPad
  /// or with drop_last by kDrop, else (evaluation) no sample is repeated. {0, 1} changes nothing.
  /// Of a stream each rank gets its shards or each world_size-th sample (see IterableDataset), with
  /// or without even. Throws Error "data.sampler.rank" and "data.sampler.size", and
  /// "data.loader.state" for a stream that is inside an epoch.
  void set_slice(DataSlice slice, bool even);
  /// A stream's ranks may have different numbers of batches: with this the epoch ends on all of
  /// them as soon as it ends on one. any_ended gives true on every rank when one of them says true,
  /// and is asked once for each batch. Called by the engine for training; nothing for other data,
  /// whose ranks get equal counts.
  void end_together(const std::function<bool(bool ended)>& any_ended);
  /// Without CUDA true throws Error "data.batch.pin_memory".
  void set_pin_memory(bool pin_memory);

  /// The next batch of the running epoch, or false at its end, after which the loader stands at the
  /// start of the next epoch. The batch's memory may be used again once the caller has let go of
  /// every tensor of it.
  bool next(Batch& batch);

  /// No batch of the running epoch is left, so that next() will give false. A stream reads one
  /// ahead to know. Where ranks end together all of them call it.
  bool at_end();

  /// How many samples of the batches handed out last, on all ranks together, repeat others so that
  /// ranks get equal counts; they are the last of them.
  int64_t padding() const;
  /// How many samples pad_last_batch added to the batch handed out last; they are its last ones.
  int64_t added() const;

  /// Epoch whose samples are read next, and how many of its size() batches are not left to hand
  /// out: where a state of another batch size or number of ranks was loaded, as this loader counts.
  int64_t epoch() const;
  int64_t batches_done() const;
  /// Stops what runs ahead and stands at the start of that epoch. Throws Error "data.loader.epoch"
  /// when it is below 0.
  void set_epoch(int64_t epoch);

  /// Remembers where it stands in the running epoch, which costs nanoseconds; rewind() goes back
  /// there, to hand out the same batches again. False, and nothing changed, where the place is not
  /// this process' alone (dispatch_batches).
  void mark();
  bool rewind();

  /// {"epoch", "samples", "seed", "size"}: samples counts those handed out on all ranks in this
  /// epoch, not those fetched ahead; size is the count of one epoch on all ranks. load_state_dict
  /// takes up there, also with another number of ranks or workers; a state of another size throws
  /// Error "data.loader.state". That of a stream is this rank's own: {"epoch", "seed", "batches",
  /// "rank", "world_size", "num_shards", "shuffle_buffer_size", "turn", "places"}; inside an epoch
  /// it wants the same number of ranks, shards and open_shards and the same shuffling. For another
  /// number of ranks, batch size or open_shards see merged_state.
  State state_dict() const;
  void load_state_dict(const State& state);
  /// Of the states of all ranks, by rank, the one that a loader on any number of ranks goes on from:
  /// of a stream the samples that none of them has read. Throws Error "data.loader.state" where one
  /// is missing.
  static State merged_state(const std::vector<State>& ranks);

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
    LEVIN_API explicit Iterator(std::shared_ptr<detail::LoaderImpl> impl);
    LEVIN_API void advance();
    std::shared_ptr<detail::LoaderImpl> impl_;
    uint64_t iteration_;
    Batch batch_;
  };

  /// Goes on where load_state_dict or set_epoch stands; where batches were handed out since, a loop
  /// that was left early, it starts the next epoch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  /// For levin's own sources.
  const std::shared_ptr<detail::LoaderImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<detail::LoaderImpl> impl_;
};

}  // namespace levin
