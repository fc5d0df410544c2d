#pragma once
// DataLoader::Impl: where the loader stands (epoch, samples handed out), and what follows from it.
// Owns the order of samples and the Prefetcher, which it starts anew after every jump.

#include "levin/data/distributed_sampler.h"
#include "levin/data/loader.h"
#include "levin/data/prefetcher.h"

namespace levin {

class DataLoader::Impl {
 public:
  Impl(DatasetPtr dataset, DataLoaderOptions options);

  const DatasetPtr& dataset() const { return dataset_; }
  const DataLoaderOptions& options() const { return options_; }
  int64_t size() const;
  void set_slice(DataSlice slice, bool even);
  void set_pin_memory(bool pin_memory);

  bool next(Batch& batch);
  /// Begins an iteration and returns its number; only the latest may go on.
  uint64_t iterate();
  uint64_t iteration() const { return iteration_; }

  int64_t epoch() const { return epoch_; }
  int64_t batches_done() const;
  void set_epoch(int64_t epoch);
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  void make_order(uint64_t seed, DataSlice slice, Uneven uneven);
  void jump(int64_t epoch, int64_t samples);
  int64_t samples_done() const;

  DatasetPtr dataset_;
  DataLoaderOptions options_;
  uint64_t seed_ = 0;
  DataSlice slice_;
  Uneven uneven_ = Uneven::kKeep;
  bool pin_memory_ = false;
  std::shared_ptr<Sampler> base_;                      ///< of all ranks
  std::unique_ptr<detail::DistributedSampler> order_;  ///< this rank's part of it
  detail::Prefetcher prefetcher_;                      ///< after order_, which it reads from

  int64_t epoch_ = 0;
  int64_t start_ = 0;      ///< samples of all ranks at the last jump
  int64_t handed_ = 0;     ///< samples handed out on this rank since
  int64_t batches_ = 0;    ///< batches handed out since
  bool fetching_ = false;  ///< the prefetcher was started since
  uint64_t iteration_ = 0;
};

}  // namespace levin
