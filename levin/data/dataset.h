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

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

// Datasets made of other datasets: parts, splits, folds, concatenations, mixtures, and a cache in
// memory. All of them throw Error "data.dataset.null" for a null pointer.
//
//   const auto parts = data::random_split(dataset, {0.9, 0.1}, 42);
//   DataLoader train(parts[0], {.batch_size = 64, .shuffle = true}), val(parts[1]);
//   auto all = data::concat({data::cache(first), second});

namespace levin::data {

/// Returns a seed for generators that are not LibTorch's, while a loader reads a dataset: it
/// depends on the loader's seed, the epoch and the sample (the batch, in Dataset::get). Elsewhere
/// LibTorch's default generator draws the seed.
LEVIN_API uint64_t sample_seed();

/// Returns a dataset of these samples of `dataset`, in this order, as torch.utils.data.Subset. An
/// index may occur several times. Throws Error "data.subset.index" at once if one of
/// `indices` is out of range; a later read throws it for an index outside of the subset.
LEVIN_API DatasetPtr subset(DatasetPtr dataset, std::vector<int64_t> indices);

/// Length of a part for random_split(): a whole number counts samples, a floating-point number is
/// a fraction of the dataset.
class SplitLength {
 public:
  /// Creates a number of samples.
  template <std::integral Integer>
  SplitLength(Integer samples) : value_(static_cast<double>(samples)) {}
  /// Creates a fraction.
  template <std::floating_point Number>
  SplitLength(Number fraction) : value_(static_cast<double>(fraction)), is_fraction_(true) {}
  /// The number or the fraction.
  double value() const { return value_; }
  /// Returns whether this is a fraction.
  bool is_fraction() const { return is_fraction_; }

 private:
  double value_;
  bool is_fraction_ = false;
};

/// Splits a dataset at random, with the same samples as torch.utils.data.random_split with
/// torch.Generator().manual_seed(seed). Lengths are whole numbers whose sum is the dataset's size,
/// or fractions whose sum is 1. A fraction's length is rounded down, and the samples that are left
/// go to the parts in turn, one each. Throws Error "data.split.lengths" for other lengths.
LEVIN_API std::vector<DatasetPtr> random_split(const DatasetPtr& dataset,
                                               const std::vector<SplitLength>& lengths,
                                               uint64_t seed);

/// Options of k_fold().
struct KFoldOptions {
  int64_t n_splits = 5;  ///< number of folds, at least 2
  bool shuffle = false;  ///< draw the samples of a fold at random; otherwise they are contiguous
  uint32_t seed = 0;     ///< seed of shuffle (random_state of scikit-learn)
};

/// One split of cross-validation.
struct Fold {
  DatasetPtr train;       ///< all other samples
  DatasetPtr validation;  ///< the samples of this fold
};

/// Splits a dataset into folds for cross-validation, with the same samples in the same order as
/// KFold of scikit-learn. The first size % n_splits folds have one sample more. Throws Error
/// "data.k_fold.splits" unless 2 <= n_splits <= size.
LEVIN_API std::vector<Fold> k_fold(const DatasetPtr& dataset, KFoldOptions options = {});

/// Returns the datasets one after another, as torch.utils.data.ConcatDataset. Samples of the
/// same index in different datasets get different random numbers. Reading a batch with samples of
/// several datasets needs the same fields, dtypes and shapes (but for dim 0), and throws Error
/// "data.samples.stack" otherwise. Throws Error "data.concat.empty" without datasets.
LEVIN_API DatasetPtr concat(std::vector<DatasetPtr> datasets);

/// When a mixture ends.
enum class MixtureEnd {
  kFirstExhausted,  ///< with the first dataset whose samples are used up
  kAllExhausted     ///< when each dataset is used up; samples of the smaller ones are repeated
};

/// Options of mixture().
struct MixtureOptions {
  std::vector<double> weights;                   ///< one for each dataset, above 0
  MixtureEnd end = MixtureEnd::kFirstExhausted;  ///< when the mixture ends
  uint64_t seed = 0;                             ///< seed of the draws
};

/// Returns a mixture of datasets. Each sample is the next one of a dataset that is drawn with a
/// probability proportional to its weight, as interleave_datasets of Hugging Face's datasets with
/// probabilities. The order is the same in each epoch; a loader's shuffle changes it. Each repeated
/// reading of a dataset has random draws of its own. As for concat(), a batch
/// with samples of several datasets needs the same fields, dtypes and shapes. Throws Error
/// "data.mixture.weights" for weights that do not fit the datasets, and if a dataset is empty.
LEVIN_API DatasetPtr mixture(std::vector<DatasetPtr> datasets, MixtureOptions options);

/// Returns a dataset that keeps samples in memory once they have been read. Samples are read one at
/// a time, and their random draws are those of the first reading for ever, independent of seed and
/// epoch: apply random transforms to the cache, not below it. A sample's fields must have the same
/// dtypes and shapes in all samples; reading throws Error "data.samples.stack" otherwise.
LEVIN_API DatasetPtr cache(DatasetPtr dataset);

}  // namespace levin::data

// Transforms of batches: what torchvision's transforms do to one image, done to the images of a
// batch, [N, channels, height, width]. Each sample has random numbers of its own.
//
//   auto train = data::transform(images, {data::random_crop({.size = {32, 32}, .padding = 4}),
//                                         data::random_horizontal_flip(),
//                                         data::normalize({.mean = {0.5}, .std = {0.25}})});

namespace levin::data {

/// Transforms a batch. seeds[i] is for the random numbers of sample i: it depends on the loader's
/// seed, the epoch, the sample and the transform's place in the list, and on nothing else. The
/// batch's tensors may be views of the dataset: do not write to them.
using BatchTransform = std::function<Batch(Batch batch, std::span<const uint64_t> seeds)>;

/// Returns the dataset with these transforms applied to each batch, in this order. For any number
/// of workers and ranks, a sample is transformed in the same way. Throws Error "data.dataset.null",
/// and "data.transform.options" for a transform that is not set. The transforms below throw
/// "data.transform.options" for options that are not valid. When a batch is read, they throw
/// "data.batch.field" if it lacks the field, and "data.transform.image" for a tensor that they
/// cannot transform.
LEVIN_API DatasetPtr transform(DatasetPtr dataset, std::vector<BatchTransform> transforms);

/// Options of random_crop().
struct RandomCropOptions {
  std::vector<int64_t> size;    ///< {height, width} of the result
  int64_t padding = 0;          ///< pixels added on each side before the crop
  double fill = 0;              ///< value of the added pixels
  std::string field = "image";  ///< field to transform
};
/// Cuts out a random part of each image, as torchvision's RandomCrop.
LEVIN_API BatchTransform random_crop(RandomCropOptions options);

/// Options of random_horizontal_flip().
struct RandomFlipOptions {
  double p = 0.5;               ///< probability of a flip
  std::string field = "image";  ///< field to transform
};
/// Mirrors each image from left to right with probability p, as RandomHorizontalFlip.
LEVIN_API BatchTransform random_horizontal_flip(RandomFlipOptions options = {});

/// Options of normalize().
struct NormalizeOptions {
  std::vector<double> mean;     ///< of each channel, or one for all
  std::vector<double> std;      ///< of each channel, or one for all; above 0
  std::string field = "image";  ///< field to transform
};
/// Computes (v - mean) / std per channel in float32, as Normalize. uint8 values are divided by 255
/// before, as by ToTensor.
LEVIN_API BatchTransform normalize(NormalizeOptions options);

/// Options of resize().
struct ResizeOptions {
  std::vector<int64_t> size;    ///< {height, width} of the result
  std::string field = "image";  ///< field to transform
};
/// Resizes the images, bilinear with antialiasing, as Resize.
LEVIN_API BatchTransform resize(ResizeOptions options);

/// Options of color_jitter(). With {s}, a strength, a factor is drawn from [max(0, 1 - s), 1 + s];
/// with {min, max}, from [min, max]; {} changes nothing.
struct ColorJitterOptions {
  std::vector<double> brightness;  ///< strength or range of factors
  std::vector<double> contrast;    ///< strength or range of factors
  std::vector<double> saturation;  ///< strength or range of factors
  std::vector<double> hue;         ///< {s}: from [-s, s]; or {min, max}, within [-0.5, 0.5]
  std::string field = "image";     ///< field to transform
};
/// Changes brightness, contrast, saturation and hue of each image in a random order, as
/// ColorJitter. Images are uint8, or float32 within [0, 1], of 3 channels.
LEVIN_API BatchTransform color_jitter(ColorJitterOptions options);

/// Options of mixup() and cutmix().
struct MixOptions {
  int64_t num_classes = 0;      ///< number of classes; labels become float32 [N, num_classes]
  double alpha = 1.0;           ///< the share of a sample is drawn from Beta(alpha, alpha)
  std::string field = "image";  ///< field to mix
  std::string label = "label";  ///< int64 [N], or float32 [N, num_classes] if mixed before
};
/// Mixes each image and its label with those of the sample before it in the batch, the first with
/// the last, as MixUp (Zhang et al. 2017), with a share for each sample. Images are float32. Which
/// sample is mixed in depends on the batch, therefore on the batch size and the number of ranks.
LEVIN_API BatchTransform mixup(MixOptions options);
/// Replaces a random box of each image by that of the sample before it, as CutMix (Yun et al.
/// 2019); the label is mixed by the areas.
LEVIN_API BatchTransform cutmix(MixOptions options);

}  // namespace levin::data
