#include "levin/data/loader_impl.h"

#include <ATen/Context.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/random.h"

namespace levin {
namespace {

DataLoaderOptions checked(const DatasetPtr& dataset, DataLoaderOptions options) {
  LEVIN_CHECK(dataset != nullptr, "data.loader.dataset", "got no data set (a null pointer)");
  LEVIN_CHECK(options.batch_size > 0, "data.loader.batch_size", "got {}, wanted at least 1",
              options.batch_size);
  LEVIN_CHECK(options.num_workers >= 0, "data.loader.num_workers", "got {}, wanted 0 or more",
              options.num_workers);
  LEVIN_CHECK(options.prefetch_factor > 0, "data.loader.prefetch_factor",
              "got {}, wanted at least 1", options.prefetch_factor);
  LEVIN_CHECK(options.sampler == nullptr || !options.shuffle, "data.loader.sampler",
              "got a sampler and shuffle=true; the sampler gives the order, so leave shuffle off");
  return options;
}

void check_pin_memory(bool pin_memory) {
  LEVIN_CHECK(!pin_memory || at::hasCUDA(), "data.batch.pin_memory",
              "pinned memory was asked for, but there is no CUDA device; leave pin_memory off");
}

int64_t divide_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

}  // namespace

DataLoader::Impl::Impl(DatasetPtr dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)),
      options_(checked(dataset_, options)),
      pin_memory_(options_.pin_memory.value_or(false)),
      prefetcher_(dataset_, {options_.batch_size, options_.drop_last, options_.num_workers,
                             options_.prefetch_factor}) {
  check_pin_memory(pin_memory_);
  make_order(static_cast<uint64_t>(options_.seed.value_or(current_seed())), slice_, uneven_);
}

void DataLoader::Impl::make_order(uint64_t seed, DataSlice slice, Uneven uneven) {
  auto base = base_;
  if (options_.sampler != nullptr) {
    base = options_.sampler;
  } else if (base == nullptr || seed != seed_) {
    base = options_.shuffle ? random_sampler(dataset_->size(), seed)
                            : sequential_sampler(dataset_->size());
  }
  auto order =
      std::make_unique<detail::DistributedSampler>(base, slice.rank, slice.world_size, uneven);
  prefetcher_.stop();
  base_ = std::move(base);
  order_ = std::move(order);
  seed_ = seed;
  slice_ = slice;
  uneven_ = uneven;
}

int64_t DataLoader::Impl::size() const {
  const int64_t samples = order_->size();
  return options_.drop_last ? samples / options_.batch_size
                            : divide_up(samples, options_.batch_size);
}

void DataLoader::Impl::set_slice(DataSlice slice, bool even) {
  LEVIN_CHECK(slice.world_size == 1 ||
                  dynamic_cast<const detail::DistributedSampler*>(base_.get()) == nullptr,
              "data.loader.sampler",
              "the sampler is distributed already and would be split once more over {} ranks; give "
              "the loader the sampler of all ranks",
              slice.world_size);
  const int64_t samples = samples_done();
  const Uneven by_count = options_.drop_last ? Uneven::kDrop : Uneven::kPad;
  make_order(seed_, slice, even ? by_count : Uneven::kKeep);
  jump(epoch_, samples);
}

void DataLoader::Impl::set_pin_memory(bool pin_memory) {
  check_pin_memory(pin_memory);
  if (pin_memory == pin_memory_) return;
  pin_memory_ = pin_memory;
  jump(epoch_, samples_done());
}

void DataLoader::Impl::jump(int64_t epoch, int64_t samples) {
  prefetcher_.stop();
  fetching_ = false;
  epoch_ = epoch;
  start_ = samples;
  handed_ = batches_ = 0;
}

bool DataLoader::Impl::next(Batch& batch) {
  batch = {};
  if (!fetching_) {
    order_->start_at(epoch_, samples_done());
    prefetcher_.start(*order_, {seed_, epoch_}, pin_memory_);
    fetching_ = true;
  }
  int64_t samples = 0;
  try {
    samples = prefetcher_.next(batch);
  } catch (...) {
    fetching_ = false;
    throw;
  }
  if (samples == 0) {
    jump(epoch_ + 1, 0);
    return false;
  }
  handed_ += samples;
  ++batches_;
  return true;
}

uint64_t DataLoader::Impl::iterate() {
  if (batches_ > 0) jump(epoch_ + 1, 0);
  return ++iteration_;
}

int64_t DataLoader::Impl::batches_done() const {
  return divide_up(start_, options_.batch_size * slice_.world_size) + batches_;
}

void DataLoader::Impl::set_epoch(int64_t epoch) {
  LEVIN_CHECK(epoch >= 0, "data.loader.epoch", "got epoch {}, wanted 0 or more", epoch);
  if (epoch != epoch_ || samples_done() > 0) jump(epoch, 0);
}

// Padding counts as samples that were read, so that every rank says the same; beyond the end there
// are none.
int64_t DataLoader::Impl::samples_done() const {
  return std::min(start_ + handed_ * slice_.world_size, base_->size());
}

State DataLoader::Impl::state_dict() const {
  State state;
  state.set("epoch", epoch_);
  state.set("samples", samples_done());
  state.set("seed", static_cast<int64_t>(seed_));
  state.set("size", base_->size());
  return state;
}

void DataLoader::Impl::load_state_dict(const State& state) {
  const int64_t epoch = state.integer("epoch");
  const int64_t samples = state.integer("samples");
  const int64_t size = state.integer("size");
  const auto seed = static_cast<uint64_t>(state.integer("seed"));
  LEVIN_CHECK(
      size == base_->size(), "data.loader.state",
      "the state is of a data set of {} samples, this one has {}; load it with the data set "
      "it was saved with",
      size, base_->size());
  LEVIN_CHECK(epoch >= 0 && samples >= 0 && samples <= size, "data.loader.state",
              "got epoch {} and {} samples of {}, wanted a place in an epoch", epoch, samples,
              size);
  make_order(seed, slice_, uneven_);
  jump(epoch, samples);
}

}  // namespace levin
