#pragma once
// DataLoader: batches of a dataset, prefetched by worker threads, like torch.utils.data.DataLoader.
// Its state counts the samples handed out, so that a run resumes within an epoch.
//
//   DataLoader loader(dataset, {.batch_size = 64, .shuffle = true, .num_workers = 2});
//   for (const auto& batch : loader) { ... }           // one epoch, then the next

#include <ATen/ops/stack.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/data/batch.h"
#include "levin/data/dataset.h"
#include "levin/data/sampler.h"

// pad_collate: collates samples of different lengths into batches of few shapes. Each batch is
// padded to the smallest of the given lengths that holds its longest sample, so that a compiled
// step (XLA, replay) is compiled once for each length. It follows transformers'
// DataCollatorWithPadding.
//
//   auto dataset = data::samples(size, read, {.collate = data::pad_collate(
//       {.lengths = {64, 128, 256}, .values = {{"tokens", 0}, {"label", -100}}})});
//   DataLoader loader(dataset, {.batch_size = 32, .pad_last_batch = true,
//                               .padding_values = {{"label", -100}}});
//   ... batch["tokens"]  // [32, 64], [32, 128] or [32, 256]
//   ... batch["mask"]    // the same shape, false where it was padded

namespace levin::data {

/// Options of pad_collate().
struct PadOptions {
  /// Lengths to pad to, ascending. A batch with a sample longer than the last length is an error.
  std::vector<int64_t> lengths;
  /// Names of the fields to pad, each with its padding value.
  std::vector<std::pair<std::string, double>> values;
  int64_t dim = 0;            ///< dim of a sample's field to pad; negative: counted from the end
  std::string mask = "mask";  ///< name of the added field that is false at padding
};

/// Returns a collate function for SampleOptions::collate; IterableDataset::collate can call it too.
/// Within a sample, the fields named in `values` must have the same length. In the batch they have
/// N samples and, in the padded dim, one of `lengths`. The mask is bool [N, length], true where the
/// sample has elements. Other fields are stacked as they are. Throws Error "data.pad.options" for
/// options that are not valid. The returned function throws Error "data.pad.length" for a sample
/// that is longer than all lengths, or whose fields differ in length; "data.pad.field" for a sample
/// without such a field or dim; and "data.samples.stack" for samples that cannot be stacked.
LEVIN_API std::function<Batch(std::vector<Sample>)> pad_collate(PadOptions options);

}  // namespace levin::data

namespace levin {

/// Options of a DataLoader, named as in torch.utils.data.DataLoader if that class has them.
struct DataLoaderOptions {
  // Behaviour
  int64_t batch_size = 1;  ///< samples per batch on this rank
  /// Shuffles: a dataset has a new permutation in each epoch, which depends on seed and epoch. A
  /// stream is shuffled as far as shuffle_buffer_size allows.
  bool shuffle = false;
  /// Order of the samples; it excludes shuffle, and streams do not support it.
  std::shared_ptr<Sampler> sampler;
  // Performance
  /// Worker threads that prefetch; with 0 the calling thread reads. For data in memory, no more
  /// workers are started than the machine has spare cores.
  int64_t num_workers = 0;
  std::optional<bool> pin_memory;  ///< pinned batches; unset: pinned when training on CUDA
  // Behaviour
  bool drop_last = false;  ///< leave out a shorter last batch
  /// Fills a shorter last batch up to batch_size by repeating its own samples. All batches then
  /// have the same shape, and a compiled step (XLA, replay) is compiled once. Every batch gets a
  /// field "sample_mask", bool [batch_size], which is false at added samples.
  bool pad_last_batch = false;
  /// Values of fields in the added samples, by field name. {{"label", -100}} is the index that
  /// cross_entropy and Accuracy ignore (ignore_index).
  std::vector<std::pair<std::string, double>> padding_values = {};
  int64_t prefetch_factor = 2;  ///< batches that each worker prefetches
  std::optional<int64_t> seed;  ///< seed of shuffling and random transforms; unset: current_seed()
  // For streaming datasets (IterableDataset)
  /// Number of buffered samples per open shard, from which shuffle draws.
  int64_t shuffle_buffer_size = 1000;
  /// Number of shards that are open at the same time. Batches come from them in turn, and up to
  /// this many workers read at the same time.
  int64_t open_shards = 4;
};

/// The part of a dataset that one rank reads.
struct DataSlice {
  int64_t rank = 0;        ///< this rank
  int64_t world_size = 1;  ///< number of ranks
};

namespace detail {
class LoaderImpl;
}  // namespace detail

/// Batches of a dataset or a stream. DataLoader is a handle: copies share the loader. It is not
/// thread-safe and supports one iteration at a time (a second begin() ends the first).
///
/// The order of batches does not depend on num_workers. If the caller would have to wait for a
/// worker, it reads a batch itself. A batch may hold views of the dataset: clone a tensor before
/// you write to it. An exception in the dataset is rethrown by next() and by the loop as Error
/// "data.loader.sample", which names the sample's index, or its shard and its position in the
/// shard. The loader then is at the position that it had before.
///
/// Streams: the shards of this rank are split over open_shards lanes. Each lane reads its shards
/// one after another; if shuffle is set, their order is new in each epoch. Batches come from the
/// lanes in turn. A lane that has ended drops out, and its last batch may be shorter. open_shards =
/// 1 gives the order of PyTorch.
///
/// The constructors throw Error "data.loader.dataset" (null), "data.loader.batch_size",
/// "data.loader.num_workers", "data.loader.prefetch_factor", "data.loader.sampler" (a sampler
/// together with shuffle; a sampler for a stream; a sampler that is already distributed, together
/// with a slice), "data.batch.pin_memory" (without CUDA), "data.loader.stream" (an option for
/// streams below 1, or no shard), and "data.loader.pad_last_batch" (with drop_last, or for a stream
/// of whole batches).
class LEVIN_API DataLoader {
 public:
  /// Creates a loader of a map-style dataset.
  DataLoader(DatasetPtr dataset, DataLoaderOptions options = {});
  DataLoader(std::nullptr_t, DataLoaderOptions options = {});  ///< throws "data.loader.dataset"
  /// Creates a loader of a streaming dataset.
  DataLoader(IterableDatasetPtr dataset, DataLoaderOptions options = {});
  /// Returns an independent loader of the same data, with the same options, at the same position.
  DataLoader copy() const;

  /// Returns whether the number of batches is known. For a stream it is known if shard_size() is
  /// known for every shard.
  bool has_size() const;
  /// Number of batches per epoch on this rank. For a stream in training it is the number on the
  /// rank that has the fewest. Throws Error "data.loader.size" if it is unknown.
  int64_t size() const;
  /// The map-style dataset; null for a stream.
  const DatasetPtr& dataset() const;
  /// Options that the loader was created with.
  const DataLoaderOptions& options() const;

  /// Restricts the loader to this rank's part, by distributed_sampler over the loader's order. The
  /// strategy calls it before the first batch. With `even` (training) all ranks get the same number
  /// of samples, by Uneven::kPad, or by kDrop if drop_last is set. Without it (evaluation) no
  /// sample is repeated. A slice of {0, 1} changes nothing. For a stream, each rank gets its own
  /// shards or one in world_size samples (see IterableDataset), with or without `even`. Throws
  /// Error "data.sampler.rank" and "data.sampler.size", and "data.loader.state" for a stream within
  /// an epoch.
  void set_slice(DataSlice slice, bool even);
  /// Ends the epoch on all ranks as soon as it ends on any rank: ranks of a stream may have
  /// different numbers of batches. `any_ended` must return true on every rank if one rank passes
  /// true; it is called once for each batch. The engine calls end_together() for training. It has
  /// no effect for a map-style dataset, because its ranks get the same number of batches.
  void end_together(const std::function<bool(bool ended)>& any_ended);
  /// Turns pinned memory on or off. Turning it on throws Error "data.batch.pin_memory" if there is
  /// no CUDA device.
  void set_pin_memory(bool pin_memory);

  /// Reads the next batch of the current epoch and returns true. Returns false at the end of the
  /// epoch; the loader is then at the start of the next one. The memory of a batch may be reused
  /// once the caller has released all its tensors.
  bool next(Batch& batch);

  /// Returns whether no batch of the current epoch is left, so that next() would return false. A
  /// stream reads one batch ahead to find out. All ranks must call it if end_together() is set.
  bool at_end();

  /// Number of repeated samples in the latest batches of all ranks, added so that all ranks get the
  /// same count. If these batches are gathered in the order of the dataset, the repeated samples
  /// come last.
  int64_t padding() const;
  /// Number of samples that pad_last_batch added to the latest batch. They are its last samples.
  int64_t added() const;

  /// Epoch whose samples are read next.
  int64_t epoch() const;
  /// How many of the epoch's size() batches are done. If a state from another batch size or
  /// number of ranks was loaded, its samples are counted in batches of this loader.
  int64_t batches_done() const;
  /// Stops prefetching and moves to the start of this epoch. Throws Error "data.loader.epoch" if
  /// epoch is below 0.
  void set_epoch(int64_t epoch);

  /// Remembers the position in the current epoch, for rewind(). This takes nanoseconds.
  void mark();
  /// Moves back to the position of mark(), so that the same batches are handed out again, and
  /// returns true. Returns false and changes nothing if the position does not belong to this
  /// process alone (dispatch_batches).
  bool rewind();

  /// Position of the loader. For a dataset: {"epoch", "samples", "seed", "size"}. "samples" is the
  /// number handed out on all ranks in this epoch, without prefetched samples; "size" is the number
  /// of samples per epoch on all ranks. For a stream it is this rank's own position: {"epoch",
  /// "seed", "batches", "rank", "world_size", "batch_size", "num_shards", "shuffle_buffer_size",
  /// "turn", "places"}.
  State state_dict() const;
  /// Continues at the position of a state. A dataset's state fits any number of ranks and workers;
  /// Error "data.loader.state" is thrown if its size differs. A stream's state within an epoch
  /// needs the same number of ranks, shards and open_shards, the same batch size and the same
  /// shuffling. For another number of ranks, batch size or open_shards see merged_state().
  void load_state_dict(const State& state);
  /// Merges the states of all ranks, ordered by rank, into one from which loaders on any number of
  /// ranks continue. For a stream, the loaders then read the samples that no rank has read yet.
  /// Throws Error "data.loader.state" if the state of a rank is missing.
  static State merged_state(const std::vector<State>& ranks);

  /// Input iterator over the batches of one epoch, for range-based for loops.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;  ///< for std::input_iterator
    using value_type = Batch;                          ///< for std::input_iterator
    using difference_type = std::ptrdiff_t;            ///< for std::input_iterator

    /// The current batch.
    const Batch& operator*() const { return batch_; }
    /// The current batch.
    const Batch* operator->() const { return &batch_; }
    /// Reads the next batch.
    Iterator& operator++() {
      advance();
      return *this;
    }
    /// Reads the next batch.
    void operator++(int) { advance(); }
    /// Returns whether the epoch has ended.
    bool operator==(std::default_sentinel_t) const { return impl_ == nullptr; }

   private:
    friend class DataLoader;
    LEVIN_API explicit Iterator(std::shared_ptr<detail::LoaderImpl> impl);
    LEVIN_API void advance();
    std::shared_ptr<detail::LoaderImpl> impl_;
    uint64_t iteration_;
    Batch batch_;
  };

  /// Begins an iteration at the position of load_state_dict() or set_epoch(). If batches were
  /// handed out since then (a loop was left early), it begins the next epoch.
  Iterator begin();
  /// End of the epoch.
  std::default_sentinel_t end() const { return {}; }

 private:
  friend const std::shared_ptr<detail::LoaderImpl>& impl_of(const DataLoader& loader);
  friend DataLoader make_loader(std::shared_ptr<detail::LoaderImpl> impl);
  explicit DataLoader(std::shared_ptr<detail::LoaderImpl> impl);

  std::shared_ptr<detail::LoaderImpl> impl_;
};

}  // namespace levin

// combined: several loaders in one training step.
//
//   trainer.fit(module, data::combined({{"labelled", labelled}, {"images", images}},
//                                      {.mode = "max_size_cycle"}));
//   ... batch.part("labelled")["label"], batch["images/image"]         // in training_step

namespace levin::data {

/// Options of combined().
struct CombinedOptions {
  /// When an epoch ends. "min_size": with the shortest loader. "max_size_cycle": with the longest;
  /// shorter loaders begin again, with new permutations and random draws. "max_size": with the
  /// longest; the batch then lacks the parts of loaders that have ended. "sequential": each batch
  /// has one part, and the loaders are read one after another.
  std::string mode = "min_size";
};

/// Returns a loader whose batches have a part of each loader, as Lightning's CombinedLoader: the
/// fields of loader "a" are named "a/x", in the order of the loaders, and Batch::part() returns
/// them. Batch::size() is that of the first part. Loaders are copied and begin where they stand.
/// Ranks split the data of each loader; a resumed run continues in each of them. With
/// dispatch_batches it is for training only. Throws Error "data.combined.options" for an unknown
/// mode, no loader, two loaders of one name, an empty name or one with a slash, or two loaders that
/// share a sampler; next() throws "data.combined.empty" for a loader without batches that should
/// begin again.
LEVIN_API DataLoader combined(const std::vector<std::pair<std::string, DataLoader>>& loaders,
                              const CombinedOptions& options = {});

}  // namespace levin::data

// torch_dataset: uses a map-style dataset of torch::data in a DataLoader, which then shuffles it,
// splits it over ranks and resumes within an epoch, as for any other dataset.
//
//   auto mnist = torch::data::datasets::MNIST("data").map(
//       torch::data::transforms::Normalize<>(0.1, 0.3));
//   levin::DataLoader loader(levin::data::torch_dataset(mnist),
//                            {.batch_size = 64, .shuffle = true});
//   for (const auto& batch : loader) model->forward(batch["data"]);  // and batch["target"]

namespace levin::detail {

// get_batch() of torch::data returns a vector of samples or, after map(Stack<>()), one sample for
// the batch. A sample is a tensor, or an Example with data and target. These templates do not need
// torch::data to be included.

template <class T>
concept IsTorchExample = requires(T example) { example.data; };

inline Batch to_batch(const at::Tensor& data) { return {{"data", data}}; }
template <IsTorchExample Example>
Batch to_batch(const Example& example) {
  if constexpr (requires { at::Tensor(example.target); }) {
    return {{"data", example.data}, {"target", example.target}};
  } else {
    return {{"data", example.data}};
  }
}
template <class T>
Batch to_batch(const std::vector<T>& samples) {
  std::vector<at::Tensor> data, target;
  for (const T& sample : samples) {
    const Batch fields = to_batch(sample);
    data.push_back(fields["data"]);
    if (fields.contains("target")) target.push_back(fields["target"]);
  }
  if (target.empty()) return {{"data", at::stack(data)}};
  return {{"data", at::stack(data)}, {"target", at::stack(target)}};
}

LEVIN_API int64_t known_size(std::optional<size_t> size);

/// Threads that read at the same time have a copy of the dataset each, as in LibTorch's own loader,
/// since get_batch() may change the dataset.
template <class TorchDataset>
class TorchDatasetAdapter final : public Dataset {
 public:
  explicit TorchDatasetAdapter(TorchDataset dataset) : original_(std::move(dataset)) {
    size_ = known_size(original_.size());
  }

  int64_t size() const override { return size_; }
  Batch get(std::span<const int64_t> indices) const override {
    std::unique_ptr<TorchDataset> reader = take();
    const std::vector<size_t> wanted(indices.begin(), indices.end());
    Batch batch = to_batch(reader->get_batch(wanted));
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(reader));
    return batch;
  }

 private:
  std::unique_ptr<TorchDataset> take() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<TorchDataset>(original_);
    auto reader = std::move(idle_.back());
    idle_.pop_back();
    return reader;
  }

  TorchDataset original_;
  int64_t size_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<TorchDataset>> idle_;
};

}  // namespace levin::detail

namespace levin::data {

/// Returns the dataset with the field "data" and, if its examples have a target, "target". Samples
/// are stacked. Random numbers that it draws depend on the batch rather than on each sample,
/// because it is read a batch at a time. Throws Error "data.torch_dataset.size" if the dataset does
/// not know its size.
template <class TorchDataset>
DatasetPtr torch_dataset(TorchDataset dataset) {
  return std::make_shared<levin::detail::TorchDatasetAdapter<TorchDataset>>(std::move(dataset));
}

}  // namespace levin::data
