#include "levin/data/loading/streams/stream_loader.h"

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/random.h"

namespace levin::detail {
namespace {

DataLoaderOptions checked_for_streams(DataLoaderOptions given) {
  DataLoaderOptions options = checked(std::move(given));
  LEVIN_CHECK(options.sampler == nullptr, "data.loader.sampler",
              "got a sampler, but an iterable dataset has its own order; leave out the sampler");
  LEVIN_CHECK(options.shuffle_buffer_size > 0 && options.open_shards > 0, "data.loader.stream",
              "got shuffle_buffer_size = {} and open_shards = {}, wanted at least 1",
              options.shuffle_buffer_size, options.open_shards);
  return options;
}

IterableDatasetPtr fit_to_read(IterableDatasetPtr dataset, const DataLoaderOptions& options) {
  LEVIN_CHECK(dataset != nullptr, "data.loader.dataset", "got a null pointer, wanted a dataset");
  LEVIN_CHECK(dataset->num_shards() > 0, "data.loader.stream",
              "got a dataset of {} shards, wanted at least 1", dataset->num_shards());
  LEVIN_CHECK(!dataset->in_batches() || options.batch_size == 1, "data.loader.batch_size",
              "got {}, but the dataset yields batches of its own size; leave out batch_size",
              options.batch_size);
  LEVIN_CHECK(!dataset->in_batches() || !options.pad_last_batch, "data.loader.pad_last_batch",
              "got pad_last_batch, but the dataset yields batches of its own size; leave out "
              "pad_last_batch");
  return dataset;
}

}  // namespace

StreamLoader::StreamLoader(IterableDatasetPtr dataset, DataLoaderOptions options)
    : LoaderImpl(checked_for_streams(std::move(options))),
      dataset_(fit_to_read(std::move(dataset), this->options())),
      num_shards_(dataset_->num_shards()),
      seed_(static_cast<uint64_t>(this->options().seed.value_or(current_seed()))),
      pin_memory_(this->options().pin_memory.value_or(false)),
      reader_(std::min(this->options().num_workers, this->options().open_shards),
              this->options().prefetch_factor) {
  jump(0);
}

std::shared_ptr<LoaderImpl> StreamLoader::copy() const {
  auto loader = std::make_shared<StreamLoader>(dataset_, options());
  loader->set_slice(slice_, /*even=*/false);
  loader->load_state_dict(state_dict());
  return loader;
}

// Rank 0's shards go to the others by its samples: one lane, so that only an epoch's last batch is
// short.
std::shared_ptr<LoaderImpl> StreamLoader::widened(int64_t times) const {
  DataLoaderOptions wide = options();
  if (!dataset_->in_batches()) wide.batch_size *= times;
  wide.open_shards = 1;
  auto loader = std::make_shared<StreamLoader>(dataset_, std::move(wide));
  loader->load_state_dict(state_dict());
  return loader;
}

std::shared_ptr<LoaderImpl> StreamLoader::in_order() const {
  DataLoaderOptions ordered = options();
  ordered.shuffle = false;
  return std::make_shared<StreamLoader>(dataset_, std::move(ordered));
}

StreamPart StreamLoader::part_of(DataSlice slice, const ReadBeforePtr& read_before) const {
  StreamPart part{.batch_size = options().batch_size,
                  .drop_last = options().drop_last,
                  .shuffle_buffer_size = options().shuffle ? options().shuffle_buffer_size : 0,
                  .read_before = read_before};
  if (!have_own_shards(num_shards_, slice.world_size, read_before != nullptr)) {
    part.stride = slice.world_size;
    part.offset = slice.rank;
  }
  return part;
}

std::vector<std::vector<int64_t>> StreamLoader::lanes_of(DataSlice slice,
                                                         bool some_read_before) const {
  return lanes_of_shards(num_shards_, slice,
                         have_own_shards(num_shards_, slice.world_size, some_read_before),
                         options().open_shards);
}

// A shard stays in its lane, so that an epoch has the same number of batches as every other.
std::vector<StreamLane> StreamLoader::open_lanes() const {
  const DrawContext context{.seed = seed_, .epoch = epoch_};
  std::vector<StreamLane> opened;
  for (std::vector<int64_t>& shards : lanes_of(slice_, read_before_ != nullptr)) {
    const size_t lane = opened.size();
    if (options().shuffle) shuffle_lane(shards, seed_, epoch_, static_cast<int64_t>(lane));
    opened.emplace_back(dataset_, std::move(shards), part_of(slice_, read_before_), context,
                        places_[lane]);
  }
  return opened;
}

std::optional<int64_t> StreamLoader::size() const { return batches_left({}); }

// If all ranks end together, this is the smallest number of all ranks.
std::optional<int64_t> StreamLoader::batches_left(const ReadBeforePtr& read_before) const {
  std::vector<int64_t> sizes;
  for (int64_t shard = 0; shard < num_shards_; ++shard) {
    const std::optional<int64_t> size = dataset_->shard_size(shard);
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  const auto batches_of = [&](DataSlice slice) {
    const StreamPart part = part_of(slice, read_before);
    int64_t batches = 0;
    for (const std::vector<int64_t>& shards : lanes_of(slice, read_before != nullptr)) {
      int64_t samples = 0;
      for (const int64_t shard : shards) {
        samples += kept_of(part, shard, sizes[static_cast<size_t>(shard)]);
      }
      batches += (samples + (part.drop_last ? 0 : part.batch_size - 1)) / part.batch_size;
    }
    return batches;
  };
  if (!any_ended_) return batches_of(slice_);
  int64_t fewest = batches_of({0, slice_.world_size});
  for (int64_t rank = 1; rank < slice_.world_size; ++rank) {
    fewest = std::min(fewest, batches_of({rank, slice_.world_size}));
  }
  return fewest;
}

void StreamLoader::set_slice(DataSlice slice, bool) {
  LEVIN_CHECK(slice.rank >= 0 && slice.rank < slice.world_size, "data.sampler.rank",
              "got rank {} of {}, wanted 0 <= rank < world_size", slice.rank, slice.world_size);
  if (slice.rank == slice_.rank && slice.world_size == slice_.world_size) return;
  LEVIN_CHECK(batches_ == 0, "data.loader.state",
              "{} batches of this dataset were read by {} ranks, so it cannot be split over {} "
              "within the epoch; split it at the start of an epoch",
              batches_, slice_.world_size, slice.world_size);
  slice_ = slice;
  jump(epoch_);
}

void StreamLoader::set_pin_memory(bool pin_memory) {
  check_pin_memory(pin_memory);
  if (pin_memory == pin_memory_) return;
  pin_memory_ = pin_memory;
  forget_ahead();
}

void StreamLoader::end_together(const std::function<bool(bool ended)>& any_ended) {
  any_ended_ = any_ended;
}

void StreamLoader::forget_ahead() {
  reader_.stop();
  reading_ = false;
  ahead_.reset();
  start_ = batches_;
}

void StreamLoader::jump(int64_t epoch) {
  epoch_ = epoch;
  batches_ = 0;
  turn_ = 0;
  read_before_.reset();
  places_.assign(lanes_of(slice_, false).size(), {});
  forget_ahead();
}

const StreamLoader::Ahead& StreamLoader::look_ahead() {
  if (ahead_) return *ahead_;
  if (!reading_) reader_.start(open_lanes(), pin_memory_);
  reading_ = true;
  Ahead ahead;
  try {
    for (size_t i = 0; i < places_.size() && !ahead.read; ++i) {
      ahead.lane = (turn_ + i) % places_.size();
      ahead.read = reader_.next(ahead.lane);
    }
  } catch (...) {
    reading_ = false;
    throw;
  }
  const bool ended = !ahead.read.has_value();
  if (any_ended_ && any_ended_(ended)) ahead.read.reset();
  return ahead_.emplace(std::move(ahead));
}

bool StreamLoader::next(Batch& batch) {
  batch = {};
  if (at_end()) {
    jump(epoch_ + 1);
    return false;
  }
  batch = std::move(ahead_->read->batch);
  places_[ahead_->lane] = ahead_->read->after;
  turn_ = (ahead_->lane + 1) % places_.size();
  ahead_.reset();
  ++batches_;
  return true;
}

bool StreamLoader::at_end() { return !look_ahead().read.has_value(); }

void StreamLoader::set_epoch(int64_t epoch) {
  LEVIN_CHECK(epoch >= 0, "data.loader.epoch", "got epoch {}, wanted 0 or more", epoch);
  if (epoch != epoch_ || batches_ > 0) jump(epoch);
}

void StreamLoader::mark() {
  marked_.batches = batches_;
  marked_.turn = turn_;
  marked_.places = places_;  // into memory that is there
}

bool StreamLoader::rewind() {
  batches_ = marked_.batches;
  turn_ = marked_.turn;
  places_ = marked_.places;
  forget_ahead();
  return true;
}

}  // namespace levin::detail
