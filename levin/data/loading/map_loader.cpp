#include <algorithm>
#include <memory>
#include <optional>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/loading/distributed_sampler.h"
#include "levin/data/loading/loader_interface.h"
#include "levin/data/loading/prefetcher.h"
#include "levin/data/sample_random.h"

namespace levin::detail {
namespace {

DatasetPtr there(DatasetPtr dataset) {
  LEVIN_CHECK(dataset != nullptr, "data.loader.dataset", "got a null pointer, wanted a dataset");
  return dataset;
}

int64_t divide_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

/// MapLoader: batches of a data set that is read by index; where it stands (epoch, samples handed
/// out), and what follows from it.
/// Owns the order of samples and the Prefetcher, which it starts anew after every jump.
class MapLoader final : public LoaderImpl {
 public:
  MapLoader(DatasetPtr dataset, DataLoaderOptions options)
      : LoaderImpl(checked(std::move(options))),
        dataset_(there(std::move(dataset))),
        pin_memory_(this->options().pin_memory.value_or(false)),
        prefetcher_(dataset_, {this->options().batch_size, this->options().drop_last,
                               this->options().num_workers, this->options().prefetch_factor}) {
    make_order(static_cast<uint64_t>(this->options().seed.value_or(current_seed())), slice_,
               uneven_);
  }

  const DatasetPtr& dataset() const override { return dataset_; }
  std::optional<int64_t> size() const override { return batches_of(order_->size()); }

  void set_slice(DataSlice slice, bool even) override {
    LEVIN_CHECK(
        slice.world_size == 1 || dynamic_cast<const DistributedSampler*>(base_.get()) == nullptr,
        "data.loader.sampler",
        "the sampler is already distributed and would be split again over {} ranks; give the "
        "loader the sampler of all ranks",
        slice.world_size);
    const int64_t samples = samples_done();
    const Uneven by_count = options().drop_last ? Uneven::kDrop : Uneven::kPad;
    make_order(seed_, slice, even ? by_count : Uneven::kKeep);
    jump(epoch_, samples);
  }

  void set_pin_memory(bool pin_memory) override {
    check_pin_memory(pin_memory);
    if (pin_memory == pin_memory_) return;
    pin_memory_ = pin_memory;
    jump(epoch_, samples_done());
  }

  std::shared_ptr<LoaderImpl> copy() const override { return widened(1); }
  std::shared_ptr<LoaderImpl> widened(int64_t times) const override {
    DataLoaderOptions wide = options();
    wide.batch_size *= times;
    auto loader = std::make_shared<MapLoader>(dataset_, std::move(wide));
    loader->load_state_dict(state_dict());
    return loader;
  }

  std::shared_ptr<LoaderImpl> in_order() const override {
    DataLoaderOptions ordered = options();
    ordered.shuffle = false;
    ordered.sampler = nullptr;
    return std::make_shared<MapLoader>(dataset_, std::move(ordered));
  }

  bool next(Batch& batch) override {
    batch = {};
    if (!fetching_) {
      {
        const DrawScope draws({seed_, epoch_}, DrawsOf::kOrder, {});
        order_->start_at(epoch_, samples_done());
      }
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

  bool at_end() override {
    const int64_t left = order_->count_from(start_) - handed_;
    return left < (options().drop_last ? options().batch_size : 1);
  }

  int64_t epoch() const override { return epoch_; }
  int64_t padding() const override {
    return std::max<int64_t>(start_ + handed_ * slice_.world_size - base_->size(), 0);
  }

  int64_t batches_done() const override {
    return batches_of(order_->size()) - batches_of(order_->count_from(start_)) + batches_;
  }

  void set_epoch(int64_t epoch) override {
    LEVIN_CHECK(epoch >= 0, "data.loader.epoch", "got epoch {}, wanted 0 or more", epoch);
    if (epoch != epoch_ || samples_done() > 0) jump(epoch, 0);
  }

  void mark() override { marked_ = samples_done(); }

  bool rewind() override {
    jump(epoch_, marked_);
    return true;
  }

  State state_dict() const override {
    State state;
    state.set("epoch", epoch_);
    state.set("samples", samples_done());
    state.set("seed", static_cast<int64_t>(seed_));
    state.set("size", base_->size());
    return state;
  }

  void load_state_dict(const State& state) override {
    const int64_t epoch = state.integer("epoch");
    const int64_t samples = state.integer("samples");
    const int64_t size = state.integer("size");
    const auto seed = static_cast<uint64_t>(state.integer("seed"));
    LEVIN_CHECK(size == base_->size(), "data.loader.state",
                "the state is of a dataset of {} samples, but this one has {}; load it with the "
                "dataset that it was saved with",
                size, base_->size());
    LEVIN_CHECK(epoch >= 0 && samples >= 0 && samples <= size, "data.loader.state",
                "got epoch {} and {} samples of {}, wanted a position within an epoch", epoch,
                samples, size);
    make_order(seed, slice_, uneven_);
    jump(epoch, samples);
  }

 private:
  bool has_begun() const override { return batches_ > 0; }

  void make_order(uint64_t seed, DataSlice slice, Uneven uneven) {
    // The sampler is set back below, so no worker may draw from it meanwhile. A slice that is refused leaves
    // the loader at the place where it was.
    if (fetching_) {
      const int64_t marked = marked_;
      jump(epoch_, samples_done());
      marked_ = marked;
    }
    auto base = base_;
    if (options().sampler != nullptr) {
      base = options().sampler;
    } else if (base == nullptr || seed != seed_) {
      base = options().shuffle ? random_sampler(dataset_->size(), seed)
                               : sequential_sampler(dataset_->size());
    }
    auto order = std::make_unique<DistributedSampler>(base, slice.rank, slice.world_size, uneven);
    base_ = std::move(base);
    order_ = std::move(order);
    seed_ = seed;
    slice_ = slice;
    uneven_ = uneven;
  }

  void jump(int64_t epoch, int64_t samples) {
    prefetcher_.stop();
    fetching_ = false;
    epoch_ = epoch;
    start_ = samples;
    handed_ = batches_ = 0;
    marked_ = samples;
  }

  // Padding counts as samples that were read, so that every rank says the same; beyond the end there
  // are none.
  int64_t samples_done() const {
    return std::min(start_ + handed_ * slice_.world_size, base_->size());
  }

  int64_t batches_of(int64_t samples) const {
    return options().drop_last ? samples / options().batch_size
                               : divide_up(samples, options().batch_size);
  }

  DatasetPtr dataset_;
  uint64_t seed_ = 0;
  DataSlice slice_;
  Uneven uneven_ = Uneven::kKeep;
  bool pin_memory_ = false;
  std::shared_ptr<Sampler> base_;              ///< sampler of all ranks' samples
  std::unique_ptr<DistributedSampler> order_;  ///< this rank's part of it
  Prefetcher prefetcher_;                      ///< after order_, which it reads from

  int64_t epoch_ = 0;
  int64_t start_ = 0;      ///< samples of all ranks at the last jump
  int64_t handed_ = 0;     ///< samples handed out on this rank since
  int64_t batches_ = 0;    ///< batches handed out since
  int64_t marked_ = 0;     ///< samples of all ranks at the last mark()
  bool fetching_ = false;  ///< the prefetcher was started since
};

}  // namespace

std::shared_ptr<LoaderImpl> make_map_loader(DatasetPtr dataset, DataLoaderOptions options) {
  return std::make_shared<MapLoader>(std::move(dataset), std::move(options));
}

}  // namespace levin::detail
