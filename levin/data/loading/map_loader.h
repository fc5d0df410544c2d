#pragma once
// MapLoader: batches of a data set that is read by index; where it stands (epoch, samples handed
// out), and what follows from it.
// Owns the order of samples and the Prefetcher, which it starts anew after every jump.

#include <memory>
#include <optional>

#include "levin/data/loading/distributed_sampler.h"
#include "levin/data/loading/loader_impl.h"
#include "levin/data/loading/prefetcher.h"

namespace levin::detail {

class MapLoader final : public LoaderImpl {
 public:
  MapLoader(DatasetPtr dataset, DataLoaderOptions options);

  const DatasetPtr& dataset() const override { return dataset_; }
  std::optional<int64_t> size() const override;
  void set_slice(DataSlice slice, bool even) override;
  void set_pin_memory(bool pin_memory) override;
  std::shared_ptr<LoaderImpl> copy() const override { return widened(1); }
  std::shared_ptr<LoaderImpl> widened(int64_t times) const override;

  bool next(Batch& batch) override;
  bool at_end() override;
  int64_t epoch() const override { return epoch_; }
  int64_t padding() const override;
  int64_t batches_done() const override;
  void set_epoch(int64_t epoch) override;
  void mark() override { marked_ = samples_done(); }
  bool rewind() override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  bool has_begun() const override { return batches_ > 0; }
  void make_order(uint64_t seed, DataSlice slice, Uneven uneven);
  void jump(int64_t epoch, int64_t samples);
  int64_t samples_done() const;
  int64_t batches_of(int64_t samples) const;

  DatasetPtr dataset_;
  uint64_t seed_ = 0;
  DataSlice slice_;
  Uneven uneven_ = Uneven::kKeep;
  bool pin_memory_ = false;
  std::shared_ptr<Sampler> base_;              ///< of all ranks
  std::unique_ptr<DistributedSampler> order_;  ///< this rank's part of it
  Prefetcher prefetcher_;                      ///< after order_, which it reads from

  int64_t epoch_ = 0;
  int64_t start_ = 0;      ///< samples of all ranks at the last jump
  int64_t handed_ = 0;     ///< samples handed out on this rank since
  int64_t batches_ = 0;    ///< batches handed out since
  int64_t marked_ = 0;     ///< samples of all ranks at the last mark()
  bool fetching_ = false;  ///< the prefetcher was started since
};

}  // namespace levin::detail
